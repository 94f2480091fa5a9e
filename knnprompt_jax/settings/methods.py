"""The catalogue of methods and their options. The files of `methods/` have their code."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.settings.classifiers import KNNOptions, PoolOptions

ALL = "all"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BM25 = "bm25"
ORDERS = ("nearest_first", "nearest_last")
COMBINATIONS = ("probability", "log_probability", "vote")


class EncoderOptions(options.Options):
    """Options of the baselines on sentence embeddings."""

    encoder: str = options.option(MINILM, "A sentence encoder by Hub name or folder.", nonempty=True)
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

    retriever: str = options.option(BM25, "bm25, or a sentence encoder by Hub name or folder.", nonempty=True)
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
    """Options of the probe.

    Its penalty is about scikit-learn's default on standardised inputs as wide as GPT-2's states.
    """

    representation: str = options.option("hidden", "Inputs of the regression.", choices=("hidden", "log_probabilities"))
    inverse_penalty: float = options.option(
        1000.0, "scikit-learn's C, on inputs whose mean square norm is 1.", least=1e-6
    )


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


class MethodOptions(options.Options):
    """The options of each base method: `--knn.k=5` sets an option of `knn` and of its presets."""

    icl: options.Options = options.group(options.Options)
    icl_multi_token: options.Options = options.group(options.Options)
    knn: KNNOptions = options.group(KNNOptions)
    auto: PoolOptions = options.group(PoolOptions)
    icl_ensemble: EnsembleOptions = options.group(EnsembleOptions)
    icl_many_shot: ManyShotOptions = options.group(ManyShotOptions)
    demonstration_upper_bound: UpperBoundOptions = options.group(UpperBoundOptions)
    noisy_channel: NoisyChannelOptions = options.group(NoisyChannelOptions)
    prompt_compose: RetrievalOptions = options.group(RetrievalOptions)
    tfidf: options.Options = options.group(options.Options)
    contextual_calibration: ContextualOptions = options.group(ContextualOptions)
    domain_context_calibration: options.Options = options.group(options.Options)
    batch_calibration: options.Options = options.group(options.Options)
    proca: PrototypicalOptions = options.group(PrototypicalOptions)
    linc: LincOptions = options.group(LincOptions)
    supervised_calibration: SupervisedOptions = options.group(SupervisedOptions)
    hidden_centroids: options.Options = options.group(options.Options)
    linear_probe: ProbeOptions = options.group(ProbeOptions)
    encoder_probe: EncoderProbeOptions = options.group(EncoderProbeOptions)
    encoder_knn: EncoderKNNOptions = options.group(EncoderKNNOptions)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A method of the catalogue.

    Attributes:
        name: the name on the command line.
        title: the name in tables.
        base: the method whose code and options it uses, a field of `MethodOptions`. The method is a preset of its base
            unless the names are equal.
        preset: the values of options that the name sets.
        printed_as: the names in the paper's tables.
        excluded_because: why "all" excludes the method; empty if "all" includes it.
    """

    name: str
    title: str
    base: str
    preset: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    printed_as: tuple[str, ...] = ()
    excluded_because: str = ""


_KNN = ("kNN Prompting", "LM Distribution + D_KL")
_READS_ROWS_TWICE = "it reads every row after other demonstrations, and without any: name the method to run it"
_NEEDS_ENCODER = "it needs a sentence encoder: name the method to download or load one"
_ENTRIES = (
    Entry("icl", "In-context learning", "icl", printed_as=("ICL", "In-Context Learning", "ICL Baseline")),
    Entry("icl_multi_token", "In-context learning, whole labels", "icl_multi_token"),
    Entry("knn", "kNN Prompting", "knn", printed_as=_KNN),
    Entry("knn_reverse_kl", "kNN, KL(anchor ‖ test)", "knn", {"distance": "reverse_kl"}, _KNN),
    Entry("knn_kl_labels", "kNN, label words", "knn", {"distance": "kl_labels"}, ("kNN Prompting (Partial)",)),
    Entry("knn_l2", "kNN, L2 of hidden states", "knn", {"distance": "l2"}, ("Contextual Repr + D_L2",)),
    Entry("knn_centroid", "Nearest mean distribution", "knn", {"centroid": "arithmetic"}),
    Entry("knn_centroid_geometric", "Nearest geometric mean", "knn", {"centroid": "geometric"}),
    Entry("auto", "AutoClassifier", "auto", excluded_because=_READS_ROWS_TWICE),
    Entry("icl_ensemble", "ICL ensemble", "icl_ensemble", printed_as=("ICL Ensemble",)),
    Entry(
        "icl_many_shot",
        "Many-shot in-context learning",
        "icl_many_shot",
        excluded_because="it fills the context with demonstrations: name the method to run it",
    ),
    Entry(
        "demonstration_upper_bound",
        "Demonstration selection, upper bound",
        "demonstration_upper_bound",
        printed_as=("DemonSelection (upper)",),
        excluded_because="it reads the evaluation rows after a thousand prompts: name the method to run it",
    ),
    Entry("noisy_channel", "Noisy channel", "noisy_channel", printed_as=("Noisy Channel", "NoisyChannel")),
    Entry(
        "prompt_compose",
        "PromptCompose",
        "prompt_compose",
        excluded_because="it selects by --prompt_compose.retriever: name the method to run it",
    ),
    Entry("prompt_compose_bm25", "PromptCompose, BM25", "prompt_compose", {"retriever": BM25}, printed_as=("BM25",)),
    # Reimers, Gurevych, EMNLP 2019; Gao, Yao, Chen, EMNLP 2021; Liu et al., "Trans-Encoder", ICLR 2022.
    Entry(
        "prompt_compose_sbert",
        "PromptCompose, SBERT",
        "prompt_compose",
        {"retriever": MINILM},
        printed_as=("SBERT",),
        excluded_because=_NEEDS_ENCODER,
    ),
    Entry(
        "prompt_compose_simcse",
        "PromptCompose, SimCSE",
        "prompt_compose",
        {"retriever": "princeton-nlp/unsup-simcse-bert-base-uncased"},
        printed_as=("SimCSE",),
        excluded_because=_NEEDS_ENCODER,
    ),
    Entry(
        "prompt_compose_trans_encoder",
        "PromptCompose, Trans-Encoder",
        "prompt_compose",
        {"retriever": "cambridgeltl/trans-encoder-bi-simcse-bert-base"},
        printed_as=("Trans-Encoder",),
        excluded_because=_NEEDS_ENCODER,
    ),
    Entry("tfidf", "TF-IDF, ridge regression", "tfidf"),
    Entry(
        "contextual_calibration",
        "Contextual calibration",
        "contextual_calibration",
        printed_as=("Contextual Calibration", "ContextualCalibration w/ Balanced Prior"),
    ),
    Entry(
        "contextual_calibration_trainset",
        "Contextual calibration, train prior",
        "contextual_calibration",
        {"prior": "trainset"},
        printed_as=("ContextualCalibration w/ Trainset Prior",),
    ),
    Entry("domain_context_calibration", "Domain-context calibration", "domain_context_calibration"),
    Entry("batch_calibration", "Batch Calibration", "batch_calibration"),
    Entry("proca", "Prototypical Calibration", "proca"),
    Entry("linc", "LinC", "linc"),
    Entry("supervised_calibration", "Vector scaling (after Supervised Calibration)", "supervised_calibration"),
    Entry("hidden_centroids", "Hidden Calibration", "hidden_centroids"),
    Entry("linear_probe", "Linear probe, last layer", "linear_probe"),
    Entry(
        "linear_probe_log_p",
        "Linear probe, log-probabilities",
        "linear_probe",
        {"representation": "log_probabilities"},
    ),
    Entry("encoder_probe", "Sentence encoder, logistic regression", "encoder_probe", excluded_because=_NEEDS_ENCODER),
    Entry("encoder_knn", "Sentence encoder, kNN", "encoder_knn", excluded_because=_NEEDS_ENCODER),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}
"""Every method by name, in the order of tables."""


def check(name: str) -> None:
    """Raise UserError with the choices if there is no method of this name."""
    if name not in CATALOGUE:
        hint = f" ({ALL} is a choice only by itself, for compare)" if name == ALL else ""
        raise errors.UserError(f"unknown method {name!r}: choose from {', '.join(CATALOGUE)}{hint}")


def bases_of(names: Iterable[str]) -> set[str]:
    """Return the base methods of these methods; of every method for "all". Unknown names are ignored."""
    selected = set(names)
    return {entry.base for entry in _ENTRIES if ALL in selected or entry.name in selected}
