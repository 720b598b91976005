"""The demo model: a small Llama that answers questions about Penstock, trained by this package.

Importing this module needs neither torch nor transformers, so tests and start-up scripts can ask
where the model lies. `python -m gpu_workers.demo_model.train` writes MODEL_FOLDER, and
`python -m gpu_workers.demo_model.evaluate` checks it against questions kept out of training.
"""

from pathlib import Path
from typing import Final

MODEL_NAME: Final = "penstock-demo"
MODEL_FOLDER: Final = Path(__file__).parent / "model"

__all__ = ["MODEL_FOLDER", "MODEL_NAME"]
