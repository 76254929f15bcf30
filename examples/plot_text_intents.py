"""
Intents of short messages, in a Pipeline with a grid search
===========================================================

"When will my card come?" may ask about a card that is late or about delivery times in general.
Sets of intents tell a help desk both, and a clear message still gets one answer.

String labels, a sparse TF-IDF matrix from end to end, and a search over the parameters of the
loss, as with any scikit-learn classifier. The example needs pandas:
``pip install ".[plot]" pandas``.
"""

# %%
# Messages
# --------
# Twelve intents in four topics. Some phrases belong to one intent, others are said with any intent
# of their topic, so that no classifier can be right about them every time.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from sksetvalued import AverageKClassifier, TopKClassifier, predict_labels, predict_set
from sksetvalued.metrics import (
    average_k_scorer,
    average_set_size,
    set_coverage_score,
    top_k_scorer,
)

INTENTS = {
    "card late": [
        "my card has not arrived yet",
        "two weeks and still no card",
        "my card seems lost in the post",
    ],
    "delivery time": [
        "how many days does a card take",
        "how long is delivery",
        "delivery time to another country",
    ],
    "track card": [
        "where is my card now",
        "give me a tracking number",
        "can i follow the card on a map",
    ],
    "card lost": ["i lost my card", "i left my card on a train", "my card is gone from my bag"],
    "card stolen": ["someone stole my card", "a thief has my card", "my wallet was stolen"],
    "card swallowed": [
        "the machine kept my card",
        "the atm did not give my card back",
        "the atm ate my card",
    ],
    "transfer pending": [
        "my transfer is still pending",
        "how long until a transfer clears",
        "transfer not done since monday",
    ],
    "transfer failed": [
        "my transfer was refused",
        "the transfer did not go through",
        "error when i send money",
    ],
    "wrong recipient": [
        "i sent money to the wrong person",
        "wrong account number in my transfer",
        "undo a transfer to a stranger",
    ],
    "exchange rate": [
        "what is your exchange rate",
        "which rate do you use for euros",
        "the rate is not the one of the market",
    ],
    "fee abroad": [
        "why was i charged abroad",
        "is there a fee for paying abroad",
        "fee for a purchase in dollars",
    ],
    "cash abroad": [
        "can i get cash abroad",
        "cash machine fee on holiday",
        "withdraw dollars at an atm",
    ],
}
SHARED = [
    ["when will my card come", "i am waiting for my card", "what about the card i ordered"],
    ["i do not have my card any more", "please block my card", "i need a new card at once"],
    ["my money did not arrive", "problem with a transfer", "where is the money i sent"],
    ["paying in another currency", "i travel next week", "how much is it in a foreign country"],
]
rng = np.random.default_rng(0)


def message(number, phrases):
    """Say one of the phrases of an intent, or of its topic, in one of many ways."""
    own = rng.random() < 0.6
    words = str(rng.choice(phrases if own else SHARED[number // 3])).split()
    kept = [word for word in words if rng.random() < 0.9]
    greeting = rng.choice(["", "hi", "hello", "please help", "good morning"])
    return " ".join([greeting, *(kept or words)]).strip()


messages = pd.DataFrame(
    [
        (message(number, phrases), intent)
        for number, (intent, phrases) in enumerate(INTENTS.items())
        for _ in range(120)
    ],
    columns=["text", "intent"],
)
text_train, text_test, y_train, y_test = train_test_split(
    messages["text"],
    messages["intent"],
    test_size=0.4,
    stratify=messages["intent"],
    random_state=0,
)
print(messages.sample(5, random_state=1).to_string(index=False))

# %%
# Search over the loss
# --------------------
# Parameters of the classifier have the usual nested names; the scorer
# :func:`~sksetvalued.metrics.top_k_scorer` works through the pipeline, also where a fold lacks a
# class.
pipeline = make_pipeline(
    TfidfVectorizer(ngram_range=(1, 2)), TopKClassifier(k=2, max_epochs=5, random_state=0)
)
search = GridSearchCV(
    pipeline,
    {"topkclassifier__epsilon": [0.1, 1.0], "topkclassifier__lr": [0.001, 0.01]},
    scoring=top_k_scorer(k=2),
    cv=2,
)
search.fit(text_train, y_train)
print(search.best_params_)
print(f"top-1 accuracy {(search.predict(text_test) == y_test).mean():.3f}")
print(f"top-2 accuracy {search.score(text_test, y_test):.3f}")

# %%
# Two intents on average
# ----------------------
# `k` and `alpha` of the average-k classifier are searched in the same way. A
# :class:`~sklearn.pipeline.Pipeline` and a search do not forward `predict_set`; the functions
# :func:`~sksetvalued.predict_set` and :func:`~sksetvalued.predict_labels` reach through both.
average = make_pipeline(
    TfidfVectorizer(ngram_range=(1, 2)),
    AverageKClassifier(k=2, calibration_fraction=0.2, max_epochs=10, random_state=0),
)
average_search = GridSearchCV(
    average, {"averagekclassifier__alpha": [0.1, 1.0]}, scoring=average_k_scorer(k=2), cv=2
)
average_search.fit(text_train, y_train)
sets = predict_set(average_search, text_test)
coverage = set_coverage_score(y_test, sets, labels=average_search.classes_)
print(f"average-2 coverage {coverage:.3f}, average size {average_set_size(sets):.2f}")

questions = [
    "someone stole my card",
    "please block my card",
    "when will my card come",
    "what is your exchange rate",
    "problem with a transfer",
]
for question, labels in zip(questions, predict_labels(average_search, questions), strict=True):
    print(f"{question:27} {', '.join(labels)}")

# %%
# The probabilities, and in frames the classes of each set:
proba = average_search.predict_proba(questions)
chosen = predict_set(average_search, questions)
fig, ax = plt.subplots(figsize=(9.5, 3.6), layout="constrained")
image = ax.pcolormesh(proba, cmap="Blues", vmin=0, vmax=1, edgecolors="white", lw=1)
for row, column in np.argwhere(chosen):
    ax.add_patch(plt.Rectangle((column, row), 1, 1, fill=False, edgecolor="#d9822b", lw=2.5))
ax.set_xticks(np.arange(12) + 0.5, average_search.classes_, rotation=40, ha="right")
ax.set_yticks(np.arange(len(questions)) + 0.5, questions)
ax.invert_yaxis()
fig.colorbar(image, label="softmax of the scores")
plt.show()
