"""ResNet-18 for 32x32 pictures in Keras: the same network as in torch, channels last.

He et al. 2015 (arXiv 1512.03385); 11,173,962 trainable parameters at 10 classes.
Convolutions follow the global dtype policy; the last layer stays float32, as Keras advises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_profiler.precision.models.resnet import BLOCKS, WIDTHS

if TYPE_CHECKING:
    import keras


def keras_resnet18(classes: int = 10, side: int = 32) -> keras.Model:
    """A functional Keras model mapping (B, side, side, 3) to (B, classes) logits."""
    import keras

    inputs = keras.Input((side, side, 3))
    x = _convolution(inputs, WIDTHS[0], 3, 1)
    x = keras.layers.ReLU()(x)
    for level, width in enumerate(WIDTHS):
        for index in range(BLOCKS):
            x = _block(x, width, 2 if level and index == 0 else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(classes, dtype="float32")(x), name="resnet18")


def _convolution(x: keras.KerasTensor, width: int, kernel: int, stride: int) -> keras.KerasTensor:
    import keras

    x = keras.layers.Conv2D(width, kernel, stride, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def _block(x: keras.KerasTensor, width: int, stride: int) -> keras.KerasTensor:
    import keras

    body = keras.layers.ReLU()(_convolution(x, width, 3, stride))
    body = _convolution(body, width, 3, 1)
    if stride != 1 or x.shape[-1] != width:
        x = _convolution(x, width, 1, stride)
    return keras.layers.ReLU()(keras.layers.Add()([body, x]))
