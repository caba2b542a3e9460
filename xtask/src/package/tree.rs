//! Files that are shipped together, written the same way every time: as an archive, or as the folder
//! that a Debian package is made from.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// Mode of folders, whatever the umask of the builder is.
const FOLDER: u32 = 0o755;

/// Files by their paths, which are relative and use `/`.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Node>);

#[derive(Debug)]
enum Node {
    Folder,
    Bytes { mode: u32, bytes: Vec<u8> },
    Copy { mode: u32, from: PathBuf },
    Link { target: String },
}

impl Tree {
    /// Adds a file with these bytes.
    pub(super) fn add(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.put(path, Node::Bytes { mode, bytes });
    }

    /// Adds a copy of a file.
    pub(super) fn copy(&mut self, path: &str, mode: u32, from: impl Into<PathBuf>) {
        let from = from.into();
        self.put(path, Node::Copy { mode, from });
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        let target = target.to_owned();
        self.put(path, Node::Link { target });
    }

    /// A path's folders sort before it, because their names end with a slash here.
    fn put(&mut self, path: &str, node: Node) {
        for (slash, _) in path.match_indices('/') {
            let folder = path[..=slash].to_owned();
            self.0.entry(folder).or_insert(Node::Folder);
        }
        self.0.insert(path.to_owned(), node);
    }

    /// Paths of the files, sorted, without folders and links.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let is_file = |node: &Node| matches!(node, Node::Bytes { .. } | Node::Copy { .. });
        let nodes = self.0.iter();
        nodes
            .filter(move |&(_, node)| is_file(node))
            .map(|(path, _)| path.as_str())
    }

    /// Writes a compressed archive. It depends on the tree and the time only.
    pub(super) fn write_archive(&self, to: impl Write, time: u64) -> Result<()> {
        let mut archive = Builder::new(compressor(to));
        for (path, node) in &self.0 {
            let added = node.append(&mut archive, path, time);
            added.with_context(|| format!("cannot pack {path}"))?;
        }
        archive.into_inner()?.finish()?.flush()?;
        Ok(())
    }

    /// Writes the files below a folder, which must not exist yet.
    pub(super) fn write_folder(&self, root: &Path) -> Result<()> {
        ensure!(!root.exists(), "{} exists already", root.display());
        make_folder(root)?;
        for (path, node) in &self.0 {
            node.write(&root.join(path))?;
        }
        Ok(())
    }
}

impl Node {
    fn append(&self, archive: &mut Builder<impl Write>, path: &str, time: u64) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_mtime(time);
        match self {
            Self::Folder => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(FOLDER);
                header.set_size(0);
                archive.append_data(&mut header, path, io::empty())
            }
            Self::Bytes { mode, bytes } => {
                header.set_mode(*mode);
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, path, bytes.as_slice())
            }
            Self::Copy { mode, from } => {
                let file = File::open(from)?;
                header.set_mode(*mode);
                header.set_size(file.metadata()?.len());
                archive.append_data(&mut header, path, file)
            }
            Self::Link { target } => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                archive.append_link(&mut header, path, target)
            }
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let failed = || format!("cannot write {}", path.display());
        let mode = match self {
            Self::Folder => return make_folder(path),
            Self::Link { target } => return symlink(target, path).with_context(failed),
            Self::Bytes { mode, bytes } => {
                fs::write(path, bytes).with_context(failed)?;
                *mode
            }
            Self::Copy { mode, from } => {
                let copied = fs::copy(from, path);
                copied.with_context(|| format!("cannot copy {}", from.display()))?;
                *mode
            }
        };
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(failed)
    }
}

fn make_folder(path: &Path) -> Result<()> {
    let made = fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(FOLDER)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Compresses without the time and the system of the builder.
fn compressor<W: Write>(to: W) -> GzEncoder<W> {
    GzBuilder::new().mtime(0).write(to, Compression::best())
}

/// Compresses a text for a package.
pub(super) fn compress(text: &[u8]) -> Result<Vec<u8>> {
    let mut compressor = compressor(Vec::new());
    compressor.write_all(text)?;
    Ok(compressor.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    const TIME: u64 = 1_795_688_100;

    /// A folder for one test, with a file to copy.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-tree-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("program"), "code").unwrap();
        folder
    }

    fn tree(folder: &Path, is_reversed: bool) -> Tree {
        let mut tree = Tree::default();
        let mut paths = ["a/lib/program", "a/etc/config", "a/bin", "a-b"];
        if is_reversed {
            paths.reverse();
        }
        for path in paths {
            match path {
                "a/lib/program" => tree.copy(path, 0o755, folder.join("program")),
                "a/etc/config" => tree.add(path, 0o640, "key = 1"),
                "a/bin" => tree.link(path, "lib/program"),
                _ => tree.add(path, 0o644, ""),
            }
        }
        tree
    }

    fn archive(tree: &Tree) -> Vec<u8> {
        let mut bytes = Vec::new();
        tree.write_archive(&mut bytes, TIME).unwrap();
        bytes
    }

    #[test]
    fn an_archive_depends_on_its_files_and_its_time_only() {
        let one = folder("one");
        let first = archive(&tree(&one, false));
        // Other times, owners and modes of the files that are packed, and another order.
        let other = folder("other");
        let program = other.join("program");
        fs::set_permissions(&program, Permissions::from_mode(0o600)).unwrap();
        let file = File::options().write(true).open(&program).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(first == archive(&tree(&other, true)), "the archives differ");
        fs::write(&program, "edoc").unwrap();
        assert!(first != archive(&tree(&other, false)), "the change is lost");
        for folder in [one, other] {
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn an_archive_has_sorted_names_and_belongs_to_root() {
        let folder = folder("names");
        let bytes = archive(&tree(&folder, false));
        let mut archive = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let header = entry.header();
            assert_eq!(header.uid().unwrap() + header.gid().unwrap(), 0);
            assert_eq!(header.mtime().unwrap(), TIME);
            let path = entry.path().unwrap().display().to_string();
            let link = entry.link_name().unwrap();
            let link = link.map_or(text, |link| link.display().to_string());
            seen.push(format!("{path} {:o} {link}", header.mode().unwrap()));
        }
        let want = [
            "a-b 644 ",
            "a/ 755 ",
            "a/bin 777 lib/program",
            "a/etc/ 755 ",
            "a/etc/config 640 key = 1",
            "a/lib/ 755 ",
            "a/lib/program 755 code",
        ];
        assert_eq!(seen, want);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_has_the_modes_of_the_tree() {
        let folder = folder("modes");
        let root = folder.join("root");
        let tree = tree(&folder, false);
        tree.write_folder(&root).unwrap();
        let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("a"), 0o755);
        assert_eq!(mode("a/etc/config"), 0o640);
        assert_eq!(mode("a/bin"), 0o755, "it leads to the program");
        assert_eq!(fs::read_to_string(root.join("a/bin")).unwrap(), "code");
        let files: Vec<_> = tree.files().collect();
        assert_eq!(files, ["a-b", "a/etc/config", "a/lib/program"]);
        assert!(
            tree.write_folder(&root).is_err(),
            "files of before would stay"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
