"""Results as lines of JSON that survive a kill."""

import json
import os


def task_key(task):
    """Return the text that identifies a task: the same task always has the same key."""
    return json.dumps(task, sort_keys=True)


class ResultFile:
    """Records of finished tasks, one JSON line each, appended and synced one by one.

    A last line without its end, left by a kill, is ignored, and cut off before the next record
    is written. A record is in the file whole or not at all.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path):
        self.path = path

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

    def _whole_lines(self):
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        return content[: content.rfind(b"\n") + 1].decode().splitlines()

    def _whole_size(self):
        return self.path.read_bytes().rfind(b"\n") + 1


def unfinished(tasks, records):
    """Return the tasks that have no record, in order."""
    return [task for task in tasks if task_key(task) not in records]
