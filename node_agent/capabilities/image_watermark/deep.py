"""Pictures of 16 bits a sample, for which Pillow has no colour modes.

Each channel is kept as two 8-bit planes, its high and its low bytes, so that Pillow's own C
code turns, cuts and packs them; only the blend joins them to numbers, a strip at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from PIL import Image, ImageMath

from node_agent.capabilities.image_watermark.exif import Turn
from node_agent.capabilities.image_watermark.pattern import Pattern, Point, Size

_STRIP_PIXELS = 1 << 20
_WIDEN = 257  # 255 * 257 == 65535
_INK_CHANNELS = 4
Plane = Image.Image


@dataclass(frozen=True, slots=True)
class Channel:
    """The high and the low bytes of one channel, both "L"."""

    high: Plane
    low: Plane

    def turned(self, transpose: Image.Transpose) -> Channel:
        """Turn both planes."""
        return Channel(self.high.transpose(transpose), self.low.transpose(transpose))


@dataclass(frozen=True, slots=True)
class DeepPicture:
    """Grey, three lights or four inks, and perhaps opacity."""

    colours: tuple[Channel, ...]
    alpha: Channel | None = None

    @property
    def size(self) -> Size:
        """Width and height in pixels."""
        return self.colours[0].high.size

    @property
    def channels(self) -> tuple[Channel, ...]:
        """All channels in the order of the file."""
        return self.colours if self.alpha is None else (*self.colours, self.alpha)

    @classmethod
    def of(cls, channels: tuple[Channel, ...], *, has_alpha: bool) -> DeepPicture:
        """Take channels in the order of the file."""
        return cls(channels[:-1], channels[-1]) if has_alpha else cls(channels)

    def turned(self, turn: Turn) -> DeepPicture:
        """Give the picture as it is seen."""
        transpose = turn.transpose
        if transpose is None:
            return self
        alpha = None if self.alpha is None else self.alpha.turned(transpose)
        return DeepPicture(tuple(colour.turned(transpose) for colour in self.colours), alpha)

    def painted(self, pattern: Pattern, origin: Point = (0, 0)) -> DeepPicture:
        """Blend the text into the colours; opacity stays as it is."""
        colours = tuple(Channel(colour.high.copy(), colour.low.copy()) for colour in self.colours)
        for box in _strips(self.size):
            masks = pattern.masks((origin[0], origin[1] + box[1]), (box[2], box[3] - box[1]))
            if masks is not None:
                for index, colour in enumerate(colours):
                    _blend(colour, box, _target(masks[0], index, len(colours)), masks[1])
        return replace(self, colours=colours)


def _strips(size: Size) -> Iterator[tuple[int, int, int, int]]:
    rows = max(1, _STRIP_PIXELS // max(1, size[0]))
    for top in range(0, size[1], rows):
        yield 0, top, size[0], min(size[1], top + rows)


def _target(shade: Plane, index: int, count: int) -> Plane:
    """Light is as bright as the shade; of four inks only black, the last, makes it darker."""
    if count != _INK_CHANNELS:
        return shade
    if index < _INK_CHANNELS - 1:
        return Image.new("L", shade.size, 0)
    return shade.point([255 - level for level in range(256)])


def _blend(
    channel: Channel, box: tuple[int, int, int, int], target: Plane, coverage: Plane
) -> None:
    mixed = ImageMath.lambda_eval(
        lambda of: (
            (
                ((of["high"] * 256 + of["low"]) * (255 - of["coverage"]))
                + of["target"] * _WIDEN * of["coverage"]
                + 127
            )
            / 255
        ),
        high=channel.high.crop(box),
        low=channel.low.crop(box),
        target=target,
        coverage=coverage,
    )
    high = ImageMath.lambda_eval(lambda of: of["value"] / 256, value=mixed)
    low = ImageMath.lambda_eval(lambda of: of["value"] % 256, value=mixed)
    channel.high.paste(high.convert("L"), box[:2])
    channel.low.paste(low.convert("L"), box[:2])


def grey_of(picture: Image.Image) -> DeepPicture:
    """Split a grey picture of mode "I;16" or "I;16B" into its planes."""
    pairs = Image.frombytes("LA", picture.size, picture.tobytes("raw", "I;16B"))
    high, low = pairs.split()
    return DeepPicture((Channel(high, low),))


def numbers_painted(picture: Image.Image, pattern: Pattern, origin: Point = (0, 0)) -> Image.Image:
    """Blend the text into 32-bit samples ("I" or "F"), from their darkest to their lightest value.

    The change is added to each sample, so that samples outside the text keep every bit.
    """
    masks = pattern.masks(origin, picture.size)
    if masks is None:
        return picture
    low, high = (float(edge) for edge in _extrema(picture))
    change = ImageMath.lambda_eval(
        lambda of: (
            (of["float"](of["shade"]) * ((high - low) / 255) + low - of["float"](of["value"]))
            * of["coverage"]
            / 255
        ),
        shade=masks[0],
        coverage=masks[1],
        value=picture,
    )
    mixed = ImageMath.lambda_eval(
        lambda of: of["value"] + of["change"], value=picture, change=change.convert(picture.mode)
    )
    return Image.Image.convert(mixed, picture.mode)


def _extrema(picture: Image.Image) -> tuple[float, float]:
    low, high = picture.getextrema()
    if isinstance(low, tuple) or isinstance(high, tuple):
        message = f"{picture.mode} has several channels"
        raise TypeError(message)
    return low, high
