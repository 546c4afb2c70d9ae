"""skorch: a classifier of scikit-learn's form; copied, pickled and in a search over its size."""

import pickle

import numpy as np
import pytest
import torch
from models import LAYERS, Classifier, difference, examples, trained
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier

X, Y = (value.numpy() for value in examples())


def classifier(layer, epochs=2):
    torch.manual_seed(0)
    parts = {"module__layer": layer, "criterion": torch.nn.CrossEntropyLoss, "optimizer": torch.optim.Adam}
    numbers = {"lr": 0.02, "max_epochs": epochs, "batch_size": 32, "train_split": None, "verbose": 0}
    return NeuralNetClassifier(Classifier, **parts, **numbers)


@pytest.mark.parametrize("layer", LAYERS)
def test_fit_gives_the_weights_of_a_plain_loop(layer):
    net = classifier(layer).fit(X, Y)
    expected, losses = trained(layer, epochs=2)
    assert difference(net.module_, expected) < 1e-6
    found = [batch["train_loss"] for epoch in net.history for batch in epoch["batches"]]
    assert np.allclose(found, losses, atol=1e-6)
    back = pickle.loads(pickle.dumps(net))
    assert np.array_equal(back.predict(X), net.predict(X))
    assert np.array_equal(back.predict_proba(X), net.predict_proba(X))


def test_it_learns_and_can_be_cloned_and_searched():
    net = classifier("GRU", epochs=25).fit(X, Y)
    assert net.score(X, Y) > 0.9
    assert clone(net).module__layer == "GRU"
    search = GridSearchCV(classifier("GRU", 25), {"module__hidden_size": [1, 8]}, cv=2, scoring="accuracy").fit(X, Y)
    assert search.best_params_ == {"module__hidden_size": 8}
    assert search.best_score_ > 0.8
