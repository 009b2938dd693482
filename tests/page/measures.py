"""What is measured of the page in a browser: how long it takes, and whether what it says can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# With 10,000 partitions, on two cores that much else wants: the usual is a tenth of it.
ONE_S, ONE_BYTES = 2.0, 200_000  # of the API server's answer about one mirror, once both clusters were asked
FIRST_PAINT_MS = 30_000.0  # Airflow's own scripts included
CANVAS_MS = 3_000.0  # from the answer to the painted canvas

_PAINTED = """() => {
  const drawn = Number(document.querySelector('canvas').dataset.drawnAt);
  const answers = performance.getEntriesByType('resource').filter((one) => one.name.includes('mirrors/one?'));
  const last = answers.filter((one) => one.responseEnd <= drawn).at(-1);
  return [performance.getEntriesByName('first-contentful-paint')[0].startTime, drawn - last.responseEnd];
}"""
# How light a text is, and what lies behind it. A canvas makes numbers of whatever CSS calls a colour.
_LIGHT = """(element) => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const paint = canvas.getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return paint.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
  const behind = (one) => rgba(getComputedStyle(one).backgroundColor);
  let paper = element;
  while (paper !== document.body && behind(paper)[3] < 255) paper = paper.parentElement;
  return [light(rgba(getComputedStyle(element).color)), light(behind(paper))];
}"""


def painted(page: Page) -> tuple[float, float]:
    """Return when a mirror's page was painted first, and how long it took from the answer to the canvas, in ms."""
    first, canvas = page.evaluate(_PAINTED)
    return float(first), float(canvas)


def readable(page: Page, text: str, scheme: str) -> None:
    """Fail unless a text is dark on light, or light on dark, and stands out from what is behind it."""
    ink, paper = page.get_by_text(text).first.evaluate(_LIGHT)
    assert (ink > paper) is (scheme == "dark") and abs(ink - paper) > 0.3, f"{text}: {ink} on {paper}, {scheme}"
