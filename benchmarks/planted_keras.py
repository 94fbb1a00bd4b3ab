"""Trainings of Keras with one planted defect each, and healthy twins.

`DEFECTS` has (name, codes that name it, maker) and `TWINS` has (name, maker); a maker takes a seed
and returns what `make_training()` would: a compiled model and its loader, or the parts.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pipeline_profiler.checks.caught_keras import KerasRecorder
from pipeline_profiler.checks.user_code import Patience

K, SIDE, COUNT = 4, 10, 256


def shapes(seed):
    """Pictures (count, side, side, 3) of four stripes on noise, and which it was."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, COUNT)
    yy, xx = np.mgrid[:SIDE, :SIDE]
    waves = [np.sin(xx * 1.1), np.sin(yy * 1.1), np.sin((xx + yy) * 0.8), np.sin((xx - yy) * 0.8)]
    x = np.stack([waves[k] for k in y])[..., None] + rng.normal(0, 0.4, (COUNT, SIDE, SIDE, 3))
    return x.astype("float32"), y.astype("int32")


def dataset(x, y, batch=32):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(COUNT, seed=0).batch(batch)


def cnn(last="softmax", units=K, rate=0.0, momentum=0.9):
    inputs = keras.Input((SIDE, SIDE, 3))
    h = layers.Conv2D(16, 3, padding="same")(inputs)
    h = layers.BatchNormalization(momentum=momentum)(h)
    h = layers.MaxPooling2D()(layers.ReLU()(h))
    h = layers.Flatten()(layers.Conv2D(16, 3, activation="relu")(h))
    if rate:
        h = layers.Dropout(rate)(h)
    return keras.Model(inputs, layers.Dense(units, last)(h))


def training(seed, model=None, loss="sparse_categorical_crossentropy", rate=2e-3, data=None):
    model = cnn() if model is None else model
    optimizer = rate if not isinstance(rate, float) else keras.optimizers.Adam(rate)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return {"model": model, "loader": data or dataset(*shapes(seed))}


def logits_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Always(keras.Model):
    """A model of its own that fixes the mode of one layer."""

    def __init__(self, layer, mode):
        super().__init__()
        self.first, self.net, self.mode = layer, cnn(), mode

    def call(self, x):
        return self.net(self.first(x, training=self.mode))


def frozen(seed, part):
    model = cnn()
    for layer in model.layers if part is None else [model.layers[-1]]:
        layer.trainable = False
    return training(seed, model)


def over_batch(seed):
    class OverBatch(keras.Model):
        def __init__(self):
            super().__init__()
            self.net = cnn(last=None)

        def call(self, x):
            return tf.nn.softmax(self.net(x), axis=0)

    model = OverBatch()
    return training(seed, model)


class Unused(keras.Model):
    """A model of its own whose middle layer may be left out or cut off."""

    def __init__(self, cut):
        super().__init__()
        self.body, self.middle, self.head = cnn("relu", 16), layers.Dense(16), layers.Dense(K)
        self.cut = cut

    def call(self, x):
        h = self.body(x)
        return self.head(self.middle(tf.stop_gradient(h) if self.cut else h))


def numbers(seed, shift=0.0, last=None, loss="mse"):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (COUNT, 6)).astype("float32")
    y = (x[:, :1] - x[:, 1:2] * (x[:, 2:3] > 0) + shift).astype("float32")
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(32, "relu"), layers.Dense(1, last)])  # fmt: skip
    return training(seed, model, loss, 5e-3, dataset(x, y))


def taped(seed, model=None, loss=None, rate=2e-3, *, trains=True, trained=None, before=None):
    """What the hooks record of a loop around a tape; trained: the layers that get gradients."""
    found = []
    recorder = KerasRecorder(Patience(60, 60), found.append)
    recorder.hook(keras.Model)
    model = cnn(None, rate=0.1) if model is None else model
    loss, optimizer = loss or logits_loss(), keras.optimizers.Adam(rate)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(before(x) if before else x, training=trains))
        weights = (
            model.layers[trained].trainable_variables if trained else model.trainable_variables
        )
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))

    for x, y in dataset(*shapes(seed)):
        step(x, y)
    recorder.end()
    return found[0].training()


def softmax_of_tf(y, outputs):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs))


def twice(y, outputs):
    return softmax_of_tf(y, tf.nn.softmax(outputs))


def by_function(y, outputs):
    values = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return tf.reduce_sum(values)


def parts(seed):
    return {"model": cnn(None), "loader": dataset(*shapes(seed)), "loss": logits_loss(),
            "optimizer": keras.optimizers.SGD(0.05, momentum=0.9)}  # fmt: skip


def vanishing():
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(1e-2, 1, 0.5))


def cosine():
    return keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(2e-3, 1000))


def flat_pairs(outputs_targets, outputs):
    return tf.reduce_mean((outputs_targets[:, 0] - outputs) ** 2)


def one_hot(seed):
    x, y = shapes(seed)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    return training(seed, cnn(), loss, data=dataset(x, np.eye(K, dtype="float32")[y]))


def binary(seed, last="sigmoid", logits=False):
    x, y = shapes(seed)
    loss = keras.losses.BinaryCrossentropy(from_logits=logits)
    return training(seed, cnn(last, 1), loss, data=dataset(x, (y[:, None] < 2).astype("float32")))


def weighted(seed, power):
    """Nine of ten examples are of the first class; a weight is the count to this power."""
    x, y = shapes(seed)
    y = np.where(np.arange(COUNT) % 10 == 0, y % 2, 0)
    weights = np.bincount(y).astype("float32") ** power
    data = tf.data.Dataset.from_tensor_slices((x, y, weights[y])).batch(32)
    return training(seed, data=data)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.x[32 * i : 32 * i + 32], self.y[32 * i : 32 * i + 32]


DEFECTS = [
    ("keras: softmax twice", {"TRAIN020"}, lambda s: training(s, loss=logits_loss())),
    ("keras: from_logits forgotten", {"TRAIN020"}, lambda s: training(s, cnn(None))),
    ("keras: sigmoid twice", {"TRAIN020"}, lambda s: binary(s, logits=True)),
    ("keras: a softmax over one output", {"TRAIN020"}, lambda s: binary(s, "softmax")),
    ("keras: class weights inverted", {"TRAIN041"}, lambda s: weighted(s, 1.0)),
    ("keras: batch norm with training=True", {"TRAIN009"},
     lambda s: training(s, Always(layers.BatchNormalization(momentum=0.9), True))),
    ("keras: dropout with training=True", {"TRAIN009"},
     lambda s: training(s, Always(layers.Dropout(0.4), True))),
    ("keras: everything frozen", {"TRAIN005"}, lambda s: frozen(s, None)),
    ("keras: the head frozen", {"TRAIN005"}, lambda s: frozen(s, "head")),
    ("keras: softmax over the batch", {"TRAIN004"}, over_batch),
    ("keras: stop_gradient", {"TRAIN005"}, lambda s: training(s, Unused(True), logits_loss())),
    ("keras: targets not standardised", {"TRAIN001"}, lambda s: numbers(s, 400.0)),
    ("keras: ReLU after the last layer", {"TRAIN003", "TRAIN005", "TRAIN004"},
     lambda s: numbers(s, -3.0, "relu")),
    ("keras: (B,) minus (B, 1)", {"TRAIN020"}, lambda s: numbers(s, loss=flat_pairs)),
    ("keras: labels from 1", {"TRAIN020"}, lambda s: training(
        s, data=dataset(shapes(s)[0], shapes(s)[1] + 1))),
    ("keras: a schedule that vanishes", {"TRAIN014"}, lambda s: training(s, rate=vanishing())),
    ("keras: learning rate 3", {"TRAIN003", "TRAIN015"}, lambda s: training(s, rate=3.0)),
    ("keras: learning rate 1e-9", {"TRAIN003", "TRAIN015"}, lambda s: training(s, rate=1e-9)),
    ("tape: softmax twice", {"TRAIN020"}, lambda s: taped(s, cnn())),
    ("tape: a softmax before that of the loss", {"TRAIN020"}, lambda s: taped(s, loss=twice)),
    ("tape: gradients for the first layer alone", {"TRAIN005"}, lambda s: taped(s, trained=1)),
    ("tape: training=True forgotten", {"TRAIN009"}, lambda s: taped(s, trains=False)),
    ("tape: inputs of zeros", {"TRAIN004"}, lambda s: taped(s, before=tf.zeros_like)),
    ("tape: stop_gradient", {"TRAIN005"}, lambda s: taped(s, Unused(True))),
    ("tape: learning rate 1e-9", {"TRAIN003", "TRAIN015"}, lambda s: taped(s, rate=1e-9)),
    ("keras: momentum of torch", {"TRAIN025"}, lambda s: training(s, cnn(momentum=0.1))),
]  # fmt: skip

TWINS = [
    ("keras: a CNN", training),
    ("keras: logits", lambda s: training(s, cnn(None), logits_loss())),
    ("keras: not compiled, parts", parts),
    ("keras: one-hot, label smoothing", one_hot),
    ("keras: binary", binary),
    ("keras: a regression", numbers),
    ("keras: dropout of 0.4", lambda s: training(s, cnn(rate=0.4))),
    (
        "keras: a frozen batch norm",
        lambda s: training(s, Always(layers.BatchNormalization(momentum=0.9), False)),
    ),
    ("keras: cosine decay", lambda s: training(s, rate=cosine())),
    ("keras: a model of its own", lambda s: training(s, Unused(False), logits_loss())),
    ("tape: a CNN", taped),
    ("tape: a loss of tf.nn", lambda s: taped(s, loss=softmax_of_tf)),
    ("tape: a function of keras.losses, summed", lambda s: taped(s, loss=by_function, rate=1e-3)),
    ("tape: a model of its own", lambda s: taped(s, Unused(False))),
    ("keras: a PyDataset", lambda s: training(s, data=Batches(*shapes(s)))),
]
