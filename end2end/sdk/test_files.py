"""Files and directories."""

import hashlib
import io
import random

import pytest
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.filesystem import DirectoryListEntry, MoveEntry, SearchEntry, WriteEntry

from waiting import wait_until

#: Larger than every buffer on the way.
BIG = 24 * 1024 * 1024


@pytest.fixture
def folder(box, request):
    """A folder for one test, removed afterwards."""
    path = f"/tmp/files-{abs(hash(request.node.name)) % 10**8}"
    box.files.create_directories([WriteEntry(path=path, mode=755)])
    yield path
    box.files.delete_directories([path])


def test_text_is_written_and_read_back(box, folder):
    path, text = f"{folder}/note.txt", "first\nzweite Zeile: ünïcödé 日本\n"
    box.files.write_file(path, text, mode=640)
    assert box.files.read_file(path) == text
    info = box.files.get_file_info([path])[path]
    assert (info.path, info.mode, info.size, info.entry_type) == (path, 640, len(text.encode()), "file")
    assert (info.owner, info.group) == ("root", "root")
    assert box.commands.run(f"stat -c '%a %s' {path}").text == f"640 {len(text.encode())}"


def test_bytes_and_streams_are_written_as_they_are(box, folder):
    data = bytes(range(256)) * 10
    box.files.write_files(
        [
            WriteEntry(path=f"{folder}/bytes", data=data),
            WriteEntry(path=f"{folder}/deep/er/stream", data=io.BytesIO(data[::-1])),
            WriteEntry(path=f"{folder}/empty", data=b""),
        ]
    )
    assert box.files.read_bytes(f"{folder}/bytes") == data
    assert box.files.read_bytes(f"{folder}/deep/er/stream") == data[::-1]
    assert box.files.read_bytes(f"{folder}/empty") == b""


def test_a_big_file_is_read_back_unchanged(box, folder):
    data = random.Random(7).randbytes(BIG)
    path = f"{folder}/big"
    box.files.write_file(path, data)
    expected = hashlib.sha256(data).hexdigest()
    assert box.commands.run(f"sha256sum < {path}").text.split()[0] == expected
    received = hashlib.sha256()
    for chunk in box.files.read_bytes_stream(path):
        received.update(chunk)
    assert received.hexdigest() == expected
    assert box.files.read_bytes(path, range_header=f"bytes={BIG - 10}-{BIG - 1}") == data[-10:]


@pytest.mark.parametrize(
    ("range_header", "expected"),
    [("bytes=0-3", "0123"), ("bytes=4-6", "456"), ("bytes=7-", "789"), ("bytes=-2", "89"), ("bytes=8-100", "89")],
)
def test_ranges(box, folder, range_header, expected):
    path = f"{folder}/digits"
    box.files.write_file(path, "0123456789")
    assert box.files.read_file(path, range_header=range_header) == expected


def test_a_range_beyond_the_end_is_refused(box, folder):
    path = f"{folder}/short"
    box.files.write_file(path, "ab")
    with pytest.raises(SandboxApiException) as refused:
        box.files.read_file(path, range_header="bytes=5-9")
    assert refused.value.status_code == 416


def test_lines_are_read_by_number(box, folder):
    path = f"{folder}/lines"
    box.files.write_file(path, "one\ntwo\r\nthree\nfour\n")
    assert box.files.read_file(path, offset=2, limit=2) == "two\nthree"
    assert box.files.read_file(path, offset=4) == "four"
    assert box.files.read_file(path, offset=9) == ""


@pytest.mark.parametrize("name", ["with space.txt", "plus+sign", "per%20cent", "quote'\"s", "ünïcödé-日本.txt", "a&b=c#d?e", "semi;colon"])
def test_names_of_every_kind(box, folder, name):
    path = f"{folder}/{name}"
    box.files.write_file(path, name)
    assert box.files.read_file(path) == name
    assert list(box.files.get_file_info([path])) == [path]
    assert [entry.path for entry in box.files.search(SearchEntry(path=folder, pattern="*"))] == [path]
    box.files.delete_files([path])
    assert box.files.search(SearchEntry(path=folder, pattern="*")) == []


def test_search_finds_by_pattern_through_folders(box, folder):
    names = ["a.py", "b.txt", "sub/c.py", "sub/deeper/d.py"]
    box.files.write_files([WriteEntry(path=f"{folder}/{name}", data=name) for name in names])
    found = box.files.search(SearchEntry(path=folder, pattern="*.py"))
    assert sorted(entry.path for entry in found) == [f"{folder}/{name}" for name in names if name.endswith(".py")]
    assert box.files.search(SearchEntry(path=folder, pattern="*.rs")) == []


def test_directories_are_made_listed_and_deleted(box, folder):
    box.files.create_directories([WriteEntry(path=f"{folder}/b/c", mode=700), WriteEntry(path=f"{folder}/a")])
    box.files.write_file(f"{folder}/b/file", "x")
    assert box.files.get_file_info([f"{folder}/b/c"])[f"{folder}/b/c"].mode == 700
    flat = box.files.list_directory(DirectoryListEntry(path=folder))
    assert [(entry.path, entry.entry_type) for entry in flat] == [(f"{folder}/a", "directory"), (f"{folder}/b", "directory")]
    deep = box.files.list_directory(DirectoryListEntry(path=folder, depth=2))
    assert [entry.path for entry in deep] == [f"{folder}/{name}" for name in ("a", "b", "b/c", "b/file")]
    box.files.delete_directories([f"{folder}/b"])
    assert [entry.path for entry in box.files.list_directory(DirectoryListEntry(path=folder))] == [f"{folder}/a"]


def test_moving_renames_and_makes_the_parent(box, folder):
    box.files.write_file(f"{folder}/old", "content")
    box.files.move_files([MoveEntry(src=f"{folder}/old", dest=f"{folder}/new/place")])
    assert box.files.read_file(f"{folder}/new/place") == "content"
    with pytest.raises(SandboxApiException) as missing:
        box.files.read_file(f"{folder}/old")
    assert missing.value.status_code == 404


def test_moving_onto_an_existing_file_is_refused(box, folder):
    box.files.write_files([WriteEntry(path=f"{folder}/{name}", data=name) for name in ("from", "to")])
    with pytest.raises(SandboxException):
        box.files.move_files([MoveEntry(src=f"{folder}/from", dest=f"{folder}/to")])
    assert box.files.read_file(f"{folder}/to") == "to"


def test_overwriting_replaces_content_and_moves_the_time(box, folder):
    path = f"{folder}/file"
    box.files.write_file(path, "a long first content")
    first = box.files.get_file_info([path])[path]
    assert abs((first.created_at - first.modified_at).total_seconds()) < 2
    wait_until("the clock of the file system moved", lambda: box.files.write_file(path, "short") or box.files.get_file_info([path])[path].modified_at > first.modified_at)
    assert box.files.read_file(path) == "short"


def test_a_link_is_listed_as_one_and_read_through(box, folder):
    box.files.write_file(f"{folder}/target", "through")
    box.commands.run(f"ln -s target {folder}/link")
    assert box.files.get_file_info([f"{folder}/link"])[f"{folder}/link"].entry_type == "symlink"
    assert box.files.read_file(f"{folder}/link") == "through"


def test_a_missing_file_is_a_404_with_a_reason(box):
    with pytest.raises(SandboxApiException) as missing:
        box.files.read_file("/no/such/file")
    assert missing.value.status_code == 404
    assert missing.value.error.code == "FILE_NOT_FOUND"
    with pytest.raises(SandboxApiException) as missing:
        box.files.get_file_info(["/no/such/file"])
    assert missing.value.status_code == 404


def test_deleting_a_missing_file_succeeds(box):
    box.files.delete_files(["/no/such/file"])
    box.files.delete_directories(["/no/such/folder"])


def test_a_folder_is_not_deleted_as_a_file(box, folder):
    with pytest.raises(SandboxException):
        box.files.delete_files([folder])
    assert box.files.list_directory(DirectoryListEntry(path=folder)) == []
