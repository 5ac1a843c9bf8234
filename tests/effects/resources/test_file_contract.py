"""The conformance suite on a folder of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from .contract import FencedContract
from .file_subjects import FileSubject


class TestFile(FencedContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> FileSubject:
        return FileSubject(tmp_path)
