"""Results as lines of JSON that survive a kill."""

import json
import lzma
import os


def task_key(task):
    """Return the text that identifies a task: the same task always has the same key."""
    return json.dumps(task, sort_keys=True)


class NoRecords(Exception):
    """Raised in place of a page that would have nothing on it.

    Parameters
    ----------
    place : Path
        The file or folder of the records.
    """

    def __init__(self, place):
        super().__init__(f"{place} holds no records that a page can be made from; see --results")


class ResultFile:
    """Records of finished tasks, one JSON line each, appended and synced one by one.

    A last line without its end, left by a kill, is ignored, and cut off before the next record
    is written. A record is in the file whole or not at all. What is compressed stands in a file
    beside it, and before what was appended since.

    Parameters
    ----------
    path : Path
        Of the plain lines; the compressed ones have ``.xz`` added.
    """

    def __init__(self, path):
        self.path = path
        self.packed = path.with_name(f"{path.name}.xz")

    def records(self):
        """Return the whole records, by key.

        Raises
        ------
        ValueError
            If a line before the last one is no record, or a key occurs twice.
        """
        records = {}
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                record = json.loads(line)
                key = task_key(record["task"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"line {number} of {self.path} is no record ({error}); remove it, and its "
                    "task will run again."
                ) from error
            if key in records:
                raise ValueError(f"line {number} of {self.path} repeats the task {key}.")
            records[key] = record
        return records

    def append(self, record):
        """Write one record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            file.truncate(self._whole_size())
            file.write(json.dumps(record, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def compress(self):
        """Move the plain lines to the compressed ones: the same bytes for the same lines."""
        if not self.path.exists():
            return
        lines = b"".join(line + b"\n" for line in self._whole_lines())
        write_packed(self.packed, lines)
        self.path.unlink()

    def _whole_lines(self):
        packed = lzma.decompress(self.packed.read_bytes()) if self.packed.exists() else b""
        plain = self.path.read_bytes()[: self._whole_size()] if self.path.exists() else b""
        lines = packed.split(b"\n")[:-1]
        # After a kill between the two steps of `compress`, lines stand in both files.
        known = set(lines)
        return lines + [line for line in plain.split(b"\n")[:-1] if line not in known]

    def _whole_size(self):
        return self.path.read_bytes().rfind(b"\n") + 1


def write_packed(path, content):
    """Write compressed bytes: all of them, or the file stays as it was."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(lzma.compress(content, preset=lzma.PRESET_EXTREME))
    unfinished.replace(path)


def unfinished(tasks, records):
    """Return the tasks that have no record, in order."""
    return [task for task in tasks if task_key(task) not in records]
