"""Tests here use the ranks of the directory above, and the made-up records of the pictures."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "pictures")]
