"""Files as another user: the kernel checks that user's permissions."""

import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    WriteEntry,
)

#: A user id without an entry in the user database.
UNLISTED = 4242


@pytest.fixture
def files(box):
    if not hasattr(box, "files_with_identity"):
        pytest.skip("the 0.1 SDK has no files_with_identity")
    return box.files_with_identity(UNLISTED, UNLISTED)


@pytest.fixture
def folder(box, request):
    """A folder that belongs to the user, removed afterwards."""
    path = f"/tmp/identity-{abs(hash(request.node.name)) % 10**8}"
    box.commands.run(f"mkdir {path} && chown {UNLISTED}:{UNLISTED} {path}")
    yield path
    box.files.delete_directories([path])


def test_created_files_belong_to_the_user(box, files, folder):
    data = bytes(range(256)) * 20_000
    files.write_files([WriteEntry(path=f"{folder}/a", data="one two"), WriteEntry(path=f"{folder}/b", data=data)])
    files.create_directories([WriteEntry(path=f"{folder}/c", mode=700)])
    owners = box.commands.run(f"cd {folder}; stat -c %u:%g a b c").text
    assert owners == "\n".join([f"{UNLISTED}:{UNLISTED}"] * 3)
    assert files.read_file(f"{folder}/a") == "one two"
    assert files.read_bytes(f"{folder}/b") == data
    assert [part for part in files.read_bytes(f"{folder}/b", range_header="bytes=1-3")] == [1, 2, 3]


def test_every_call_works(files, folder):
    files.write_file(f"{folder}/a.txt", "old old")
    detailed = files.replace_contents_detailed(
        [ContentReplaceEntry(path=f"{folder}/a.txt", old_content="old", new_content="new")]
    )
    assert [result.replaced_count for result in detailed] == [2]
    files.move_files([MoveEntry(source=f"{folder}/a.txt", destination=f"{folder}/d/b.txt")])
    found = files.search(SearchEntry(path=folder, pattern="*.txt"))
    assert [entry.path for entry in found] == [f"{folder}/d/b.txt"]
    listed = files.list_directory(DirectoryListEntry(path=folder, depth=2))
    assert [entry.path for entry in listed] == [f"{folder}/d", f"{folder}/d/b.txt"]
    assert files.get_file_info([f"{folder}/d/b.txt"])[f"{folder}/d/b.txt"].owner == str(UNLISTED)
    files.delete_files([f"{folder}/d/b.txt"])
    files.delete_directories([f"{folder}/d"])
    assert files.list_directory(DirectoryListEntry(path=folder)) == []


@pytest.mark.parametrize("path", ["/root/x", "/etc/x", "/etc/shadow"])
def test_calls_without_permission_are_refused(box, files, path):
    existed = box.commands.run(f"cat {path}").exit_code == 0
    with pytest.raises(SandboxApiException) as refused:
        files.write_file(path, "x")
    assert refused.value.status_code >= 400
    assert "permission" in str(refused.value).lower()
    if existed:
        with pytest.raises(SandboxApiException):
            files.read_file(path)
    else:
        assert box.commands.run(f"test -e {path}").exit_code == 1
