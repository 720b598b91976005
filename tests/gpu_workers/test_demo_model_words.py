"""What the reader of the corpus's word lists refuses."""

from pathlib import Path

import pytest

from gpu_workers.demo_model import words
from gpu_workers.demo_model.data_file import DataFileError, read
from gpu_workers.demo_model.words import Words

TEXT = Path(words.__file__).with_suffix(".toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("openings = [", "openers = [", "openers"),
        ("frames = [", "farmes = [", "farmes"),
        ("[synonyms]", "[homonyms]", "homonyms"),
        ("closings = [", "closings = []\nasides = [", "closings"),
        ('"owl",', '"owl ",', "slots"),
        ('why = ["for what reason",', 'why = [1, "for what reason",', "synonyms"),
        ('why = ["for what reason",', 'why = [["for what reason"],', "synonyms"),
        ('cost = ["price", "charge"]', 'cost = "price"', "synonyms"),
        ('cost = ["price", "charge"]', "cost = []", "synonyms"),
        ('cost = ["price", "charge"]', 'pay = ["price"]', "TOML"),
    ],
)
def test_wrong_words_are_refused_by_file_and_list(
    tmp_path: Path, right: str, wrong: str, named: str
) -> None:
    file = tmp_path / "words.toml"
    assert right in TEXT
    file.write_text(TEXT.replace(right, wrong, 1), encoding="utf-8")
    with pytest.raises(DataFileError, match=named) as refused:
        read(file, Words, remedy="Correct it.")
    assert refused.value.file == file
