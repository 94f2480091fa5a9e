"""The methods by name, each with its options. The files of `methods/` declare what they do."""

import dataclasses
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.settings.classifiers import KNNOptions, RuleOptions, VoteOptions
from knnprompt_jax.settings.models import FLOATS
from knnprompt_jax.settings.stores import DIRECTIONS

ALL = "all"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BM25 = "bm25"
ORDERS = ("nearest_first", "nearest_last")
COMBINATIONS = ("probability", "log_probability", "vote")
_BATCH = {"cb": 8, "agnews": 8, "rte": 8, "dbpedia": 4}


class EncoderOptions(options.Options):
    """Options of the baselines on sentence embeddings."""

    encoder: str = options.option(MINILM, "A sentence encoder by Hub name or folder.", needed=True)
    pooling: str = options.option("", "Pooling of an encoder whose files do not name one: mean or cls.")


class EncoderProbeOptions(EncoderOptions):
    """Options of the regression on sentence embeddings."""

    inverse_penalty: float = options.option(1.0, "scikit-learn's C, with its default.", least=1e-6)


class EncoderKNNOptions(EncoderOptions):
    """Options of the vote of the nearest train rows."""

    k: int = options.option(3, "Neighbours that vote.", least=1)


class NoisyChannelOptions(options.Options):
    """Options of the scores. Texts that exceed the context lose tokens on the left."""

    shown: str = options.option(
        "demonstrations",
        "The split's demonstrations, or all its train rows, as in the paper's few-shot table.",
        choices=("demonstrations", "all"),
    )
    template: int = options.option(
        0, "1 to 4; 0 scores all four and keeps the best on the evaluation rows.", least=0, most=4
    )
    text_tokens: int = options.option(
        0,
        "Maximum tokens of a query; 0: 112, and 240 for CR, SUBJ, AGNews and DBPedia. Demonstrations have 16 more.",
        least=0,
    )
    context_tokens: int = options.option(0, "Maximum tokens read and scored; 0: 1,024.", least=0)


class RetrievalOptions(options.Options):
    """Options of the selection. Long prompts lose their first demonstration first."""

    retriever: str = options.option(BM25, "bm25, or a sentence encoder by Hub name or folder.", needed=True)
    pooling: str = options.option("", "Pooling of an encoder whose files do not name one: mean or cls.")
    order: str = options.option(
        "nearest_first", "Whether the demonstration nearest to the query comes first or last.", choices=ORDERS
    )


class ContextualOptions(options.Options):
    """Options of contextual calibration."""

    prior: str = options.option(
        "balanced",
        "The prior of the classes: equal, or their shares of the split's train rows.",
        choices=("balanced", "trainset"),
    )


class PrototypicalOptions(options.Options):
    """Options of Prototypical Calibration."""

    restarts: int = options.option(100, "Mixtures to estimate; the one that matches the labels best is kept.", least=1)


class LincOptions(options.Options):
    """Options of LinC. The source tunes the learning rate and the epochs per task; the defaults are those for SST2."""

    epochs: int = options.option(15, "Passes over the rows.", least=1)
    learning_rate: float = options.option(0.015, "Learning rate of the gradient descent.", least=0)
    rows: int = options.option(100, "Maximum number of anchors to learn from.", least=1)


class SupervisedOptions(options.Options):
    """Options of vector scaling (after Supervised Calibration)."""

    penalty: float = options.option(
        1.0, "Strength of the regularisation towards slopes of 1 and shifts of 0.", least=1e-6
    )


class ProbeOptions(options.Options):
    """Options of the probe. Its penalty is about scikit-learn's default on standardised inputs as wide as GPT-2's states."""

    representation: str = options.option("hidden", "Inputs of the regression.", choices=("hidden", "log_probabilities"))
    inverse_penalty: float = options.option(
        1000.0, "scikit-learn's C, on inputs whose mean square norm is 1.", least=1e-6
    )


class TfidfOptions(options.Options):
    """Options of the regression on TF-IDF features."""

    inverse_penalty: float = options.option(1.0, "scikit-learn's C, with its default.", least=1e-6)
    ngrams: int = options.option(2, "Longest run of words that is a term; 1 for single words.", least=1)


class EnsembleOptions(options.Options):
    """Options of the ensemble."""

    combination: str = options.option(
        "probability", "The mean of probabilities, the mean of their logarithms, or a vote.", choices=COMBINATIONS
    )


class ManyShotOptions(options.Options):
    """Options of many-shot in-context learning."""

    most: int = options.option(0, "Maximum number of demonstrations, all classes together; 0: all that fit.", least=0)


class UpperBoundOptions(options.Options):
    """Options of the search for the best prompt."""

    num_prompts: int = options.option(1000, "Number of random prompts to try.", least=1)


class FineTuningOptions(options.Options):
    """Options of fine-tuning. Weights stay float32."""

    model: str = options.option("", "A Hub name or a folder; empty: the run's language model.")
    checkpoints: str = options.option("", "Folder for checkpoints, from which training resumes; empty: none.")
    steps: int = options.option(0, "Optimizer steps; 0: the paper's for the number of shots.", least=0)
    batch: int = options.option(0, "Rows per step; 0: the paper's for the task.", least=0)
    learning_rate: float = options.option(1e-5, "Learning rate of the first step; it falls linearly to 0.", least=1e-12)
    weight_decay: float = options.option(0.01, "AdamW's weight decay; biases and normalisation have none.", least=0)
    clip: float = options.option(1.0, "Maximum norm of the gradient.", least=1e-12)
    dropout: float = options.option(0.1, "Share of activations to drop.", least=0, most=0.99)
    max_length: int = options.option(256, "Maximum tokens of a text; further tokens are dropped.", least=1)
    dtype: str = options.option("float32", "Dtype of activations.", choices=FLOATS)
    remat: bool = options.option(False, "Recompute activations in the backward pass, to save memory.")
    checkpoint_every: int = options.option(100, "Steps between checkpoints.", least=1)

    def with_published(self, task_name: str, shots: int) -> "FineTuningOptions":
        """Replace steps and batch of 0 by the paper's; the steps are those of its next larger number of shots."""
        steps = 125 if shots <= 64 else 250 if shots <= 256 else 500
        return dataclasses.replace(self, steps=self.steps or steps, batch=self.batch or _BATCH.get(task_name, 16))


def _distances(base: type[options.Options], *names: str) -> type[options.Options]:
    """Return options with a choice of distances; the first is the default."""
    choice = options.option(names[0], "Direction of the KL divergence.", choices=names)
    return options.subclass("DistanceOptions", base, {"distance": (str, choice)})


def _with(kind: type[options.Options], **defaults: Any) -> type[options.Options]:
    """Return the same options with other defaults."""
    own = {field.name: field for field in dataclasses.fields(kind)}
    changed = {
        name: (own[name].type, dataclasses.field(default=default, metadata=own[name].metadata))
        for name, default in defaults.items()
    }
    return options.subclass(kind.__name__, kind, changed)


METHODS: dict[str, type[options.Options]] = {
    "icl": options.Options,
    "icl_multi_token": options.Options,
    "knn": KNNOptions,
    "knn_reverse_kl": VoteOptions,
    "knn_kl_labels": _distances(VoteOptions, "kl_labels", "reverse_kl_labels"),
    "knn_l2": VoteOptions,
    "knn_centroid": _distances(options.Options, *DIRECTIONS),
    "knn_centroid_geometric": _distances(options.Options, *DIRECTIONS),
    "chosen": RuleOptions,
    "knn_chosen": _with(RuleOptions, rule="votes"),
    "icl_ensemble": EnsembleOptions,
    "icl_many_shot": ManyShotOptions,
    "demonstration_upper_bound": UpperBoundOptions,
    "noisy_channel": NoisyChannelOptions,
    "prompt_compose_bm25": RetrievalOptions,
    "prompt_compose_sbert": _with(RetrievalOptions, retriever=MINILM),
    "prompt_compose_simcse": _with(RetrievalOptions, retriever="princeton-nlp/unsup-simcse-bert-base-uncased"),
    "prompt_compose_trans_encoder": _with(RetrievalOptions, retriever="cambridgeltl/trans-encoder-bi-simcse-bert-base"),
    "fine_tuning": FineTuningOptions,
    "fine_tuning_bert": _with(FineTuningOptions, model="google-bert/bert-large-uncased"),
    "fine_tuning_gpt2": _with(FineTuningOptions, model="openai-community/gpt2-large"),
    "tfidf": TfidfOptions,
    "contextual_calibration": ContextualOptions,
    "contextual_calibration_trainset": _with(ContextualOptions, prior="trainset"),
    "domain_context_calibration": options.Options,
    "batch_calibration": options.Options,
    "proca": PrototypicalOptions,
    "linc": LincOptions,
    "supervised_calibration": SupervisedOptions,
    "hidden_centroids": options.Options,
    "linear_probe": ProbeOptions,
    "linear_probe_log_p": _with(ProbeOptions, representation="log_probabilities"),
    "encoder_probe": EncoderProbeOptions,
    "encoder_knn": EncoderKNNOptions,
}
MethodOptions = options.subclass(
    "MethodOptions",
    options.Options,
    {name: (kind, options.group(kind)) for name, kind in METHODS.items()},
    "The options of each method.",
)


def check(name: str) -> None:
    """Raise UserError with the choices if there is no method of this name."""
    if name not in METHODS:
        alone = f" ({ALL} stands alone, for run and compare)" if name == ALL else ""
        raise errors.UserError(f"unknown method {name!r}: choose from {', '.join(METHODS)}{alone}")
