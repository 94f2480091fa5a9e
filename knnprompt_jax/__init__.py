"""kNN Prompting for JAX: training-free text classification with frozen language models.

A frozen language model reads each training example as a prompt; what it says about the next token is kept as that example's anchor.
A new text gets the label of the anchors about which the model says the same: nearest in KL divergence
(Xu et al., "kNN Prompting", ICLR 2023).

Shape notation of the whole package: a name ends in one letter per axis, `h_NE`, `logk_NV`, and einsum strings use the same letters.

    N anchors or prompts   Q queries          V vocabulary        D model width       E width of the head's input (D but for OPT-350m)
    L layers               H attention heads  K head size         F MLP width         M position embeddings
    P prefix tokens        R packed rows      S row width, tokens B rows a step       T steps, or tokens of a whole sequence
    J suffix ends a step   C classes          k neighbours
"""
