"""Label support tickets: fit a classifier to a table, find and correct wrong labels, and draw confusion matrices.

python examples/label_support_tickets.py                # SmolLM2
python examples/label_support_tickets.py gemma-3-270m

`tickets.csv` has three kinds of tickets. T10 and T21 are labelled wrongly on purpose.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from sklearn import metrics

import knnprompt_jax as kp

SUSPICIOUS = 4  # Number of tickets to print.


def main(model_name: str = "smollm2", output: pathlib.Path = pathlib.Path("tickets.png")) -> pd.DataFrame:
    """Return the tickets whose labels the others contradict most, and draw the confusion matrices."""
    # 1. Fit: two tickets per class become demonstrations, all others anchors.
    tickets = pd.read_csv(pathlib.Path(__file__).with_name("tickets.csv"))
    classifier = kp.AutoClassifier(kp.demo_model(model_name), demo_shots=2, random_state=1).fit(
        tickets["text"], tickets["label"]
    )

    # 2. Find labels that the other tickets contradict: each anchor is classified by all others.
    _, p_NC = classifier.left_out()
    anchors = list(classifier.anchors_.values())
    own_N = p_NC[np.arange(len(anchors)), [classifier.task_.class_index(anchor.label) for anchor in anchors]]
    best_N = np.array(classifier.task_.labels)[p_NC.argmax(-1)]
    suspicious = tickets.iloc[list(classifier.anchors_)].assign(probability=own_N, suggestion=best_N)
    suspicious = suspicious.sort_values("probability").head(SUSPICIOUS)
    print(suspicious.to_string(index=False))

    # 3. Correct them and fit again. A person decides; here we know the two wrong labels. Only new prompts are read.
    figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    draw(classifier, panels[0], "as labelled")
    tickets.loc[[9, 20], "label"] = ["billing", "outage"]
    classifier.fit(tickets["text"], tickets["label"])
    draw(classifier, panels[1], "corrected")
    figure.savefig(output, dpi=110)

    # 4. Label new tickets, and explain a label.
    print(classifier.predict(["I never got my receipt", "the page stays white"]))
    print(classifier.explain("I never got my receipt"))
    return suspicious


def draw(classifier: kp.AutoClassifier, axes: plt.Axes, title: str) -> None:
    """Draw the confusion matrix of the anchors, each classified by all others."""
    classes_N, _ = classifier.left_out()
    labels = np.array(classifier.task_.labels)
    own_N = [anchor.label for anchor in classifier.anchors_.values()]
    metrics.ConfusionMatrixDisplay.from_predictions(own_N, labels[classes_N], ax=axes, colorbar=False, cmap="Blues")
    axes.set_title(f"{title}: {np.mean(own_N == labels[classes_N]):.0%} agree with the others")


if __name__ == "__main__":
    main(*sys.argv[1:])
