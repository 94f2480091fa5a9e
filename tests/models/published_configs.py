"""The config.json of published models, with all keys as on the Hub, as far as we know them."""

import json
import pathlib

CONFIGS = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
