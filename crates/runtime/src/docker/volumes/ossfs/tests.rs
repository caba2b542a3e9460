//! Buckets with programs that only write into a table of mounts.

use osb_protocol::lifecycle::OssfsVersion;

use super::{program::fake, *};

/// A program that mounts: it adds a line to the table.
const MOUNT: &str = r#"
here="$(dirname "$0")"
echo "$2" >> "$here/mounted"
echo "40 22 0:50 / $2 rw - fuse.ossfs2 x rw" >> "$here/table"
"#;
/// A program that ends a mount.
const UNMOUNT: &str = r#"
here="$(dirname "$0")"
grep -v " $2 rw " "$here/table" > "$here/table.new"
cat "$here/table.new" > "$here/table"
"#;

/// Puts programs and an empty table of mounts into a folder. Returns their search path, and the table.
pub(in crate::docker) fn install(at: &Path) -> (std::ffi::OsString, PathBuf) {
    fake::install(at, "ossfs2", MOUNT);
    fake::install(at, "fusermount", UNMOUNT);
    let table = at.join("table");
    fs::write(&table, "22 1 0:21 / / rw shared:1 - ext4 d rw\n").unwrap();
    (fake::search(at), table)
}

struct Stage {
    folder: tempfile::TempDir,
    ossfs: Ossfs,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        let (search, table) = install(&at);
        fs::create_dir(at.join("secrets")).unwrap();
        let root = at.join("mnt");
        let ossfs = Ossfs {
            in_container: false,
            allowed: AllowedPaths::default(),
            instance: "us".to_owned(),
            table,
            records: Arc::new(Records::below(&root)),
            programs: Programs::new(Some(search), at.join("secrets"), "us"),
            root,
        };
        Self { folder, ossfs }
    }

    async fn provide(&self, bucket: &OssfsVolume, sub_path: &[String]) -> Result<Found, Refusal> {
        let place = self.ossfs.choose(bucket, sub_path).await?;
        self.ossfs.provide(bucket, sub_path, place).await
    }

    fn root(&self) -> &Path {
        &self.ossfs.root
    }

    /// How often something was mounted.
    fn mounts(&self) -> usize {
        let text = fs::read_to_string(self.folder.path().join("mounted"));
        text.unwrap_or_default().lines().count()
    }

    fn is_mounted(&self, path: &Path) -> bool {
        self.ossfs.mounts().unwrap().has(path)
    }
}

fn bucket(secret: &str) -> OssfsVolume {
    OssfsVolume {
        bucket: "data".to_owned(),
        endpoint: "https://oss.example".to_owned(),
        version: OssfsVersion::V2,
        options: None,
        access_key_id: "id".to_owned(),
        access_key_secret: secret.to_owned(),
    }
}

fn parts(path: &str) -> Vec<String> {
    host_files::parts_of(path).unwrap()
}

fn used(paths: &[&Path]) -> BTreeSet<PathBuf> {
    paths.iter().map(|path| path.to_path_buf()).collect()
}

#[tokio::test]
async fn a_bucket_is_mounted_once_and_ends_with_its_last_user() {
    let stage = Stage::set();
    let place = stage.root().join("data");
    for _ in 0..2 {
        let found = stage.provide(&bucket("a"), &[]).await.unwrap();
        assert_eq!(found.path, place);
    }
    assert_eq!((stage.mounts(), stage.is_mounted(&place)), (1, true));
    assert_eq!(stage.ossfs.own_mounts().await, std::slice::from_ref(&place));
    stage.ossfs.release(&place, &used(&[&place]), false).await;
    assert!(stage.is_mounted(&place), "another sandbox uses it");
    stage.ossfs.release(&place, &used(&[]), false).await;
    assert!(!stage.is_mounted(&place) && !place.exists());
    assert_eq!(stage.ossfs.own_mounts().await, [""; 0].map(PathBuf::from));
    stage.ossfs.release(&place, &used(&[]), false).await;
    assert_eq!(stage.mounts(), 1);
}

#[tokio::test]
async fn another_key_does_not_get_the_mount_of_the_first() {
    let stage = Stage::set();
    stage.provide(&bucket("a"), &[]).await.unwrap();
    let shared = stage.root().join("data");
    let second = stage.provide(&bucket("b"), &[]).await.unwrap().path;
    assert_ne!(second, shared);
    assert_eq!(stage.ossfs.bucket_of(&second).as_deref(), Some("data"));
    for _ in 0..2 {
        let again = stage.provide(&bucket("b"), &[]).await.unwrap().path;
        assert_eq!(again, second);
    }
    // It stays where it is, although the first place is free.
    stage.ossfs.release(&shared, &used(&[&second]), false).await;
    let again = stage.provide(&bucket("b"), &[]).await.unwrap().path;
    assert_eq!((again, stage.mounts()), (second.clone(), 2));
    assert_eq!(stage.provide(&bucket("c"), &[]).await.unwrap().path, shared);
    // A mount point without a record: an operator's.
    let other = OssfsVolume {
        bucket: "own".to_owned(),
        ..bucket("a")
    };
    let line = format!(
        "41 22 0:51 / {} rw - fuse.x x rw\n",
        stage.root().join("own").display()
    );
    let table = fs::read_to_string(&stage.ossfs.table).unwrap() + &line;
    fs::write(&stage.ossfs.table, table).unwrap();
    let place = stage.provide(&other, &[]).await.unwrap().path;
    assert!(place.starts_with(stage.root().join(PATHS)), "{place:?}");
    assert_eq!(stage.mounts(), 4);
    // Nor is it ended, unless a sandbox of another server says that it was made for it.
    let place = stage.root().join("own");
    stage.ossfs.release(&place, &used(&[]), false).await;
    assert!(stage.is_mounted(&place));
    stage.ossfs.release(&place, &used(&[]), true).await;
    assert!(!stage.is_mounted(&place));
}

#[tokio::test]
async fn a_directory_of_a_bucket_is_a_mount_of_its_own() {
    let stage = Stage::set();
    let place = stage.root().join("data");
    let provide = async |below: &str| stage.provide(&bucket("a"), &parts(below)).await;
    let outer = provide("a").await.unwrap().path;
    let inner = provide("a/b").await.unwrap().path;
    let again = provide("a//./b").await.unwrap().path;
    assert_eq!((&inner, stage.mounts()), (&again, 2));
    // In no other mount, where a sandbox could replace it.
    assert!(!inner.starts_with(&outer) && !inner.starts_with(&place));
    assert_eq!(provide("").await.unwrap().path, place);
    assert_eq!(provide("a").await.unwrap().path, outer);
    assert_eq!(stage.mounts(), 3);
    // What a sandbox makes in the bucket leads nowhere.
    std::os::unix::fs::symlink("/etc", place.join("out")).unwrap();
    let out = provide("out").await.unwrap().path;
    assert!(out.starts_with(stage.root().join(PATHS)), "{out:?}");
    stage.ossfs.release(&inner, &used(&[&outer]), false).await;
    assert!(!stage.is_mounted(&inner) && stage.is_mounted(&outer));
    for path in [&outer, &out] {
        stage.ossfs.release(path, &used(&[]), false).await;
        assert!(!stage.is_mounted(path) && !path.exists());
    }
    assert!(stage.is_mounted(&place));
}

#[tokio::test]
async fn a_mount_of_another_server_is_not_hidden() {
    let stage = Stage::set();
    let inner = stage.root().join("data/a");
    let line = format!("41 22 0:51 / {} rw - fuse.x x rw\n", inner.display());
    let table = fs::read_to_string(&stage.ossfs.table).unwrap() + &line;
    fs::write(&stage.ossfs.table, table).unwrap();
    for sub_path in ["", "a"] {
        let place = stage.provide(&bucket("a"), &parts(sub_path)).await;
        let place = place.unwrap().path;
        assert!(place.starts_with(stage.root().join(PATHS)), "{place:?}");
    }
    assert_eq!(stage.mounts(), 2);
}

#[tokio::test]
async fn a_root_behind_a_link_or_within_reach_of_sandboxes_is_refused() {
    let mut stage = Stage::set();
    let at = stage.folder.path().canonicalize().unwrap();
    stage.ossfs.allowed = AllowedPaths::resolve(std::slice::from_ref(&at));
    let refused = stage.provide(&bucket("a"), &[]).await.unwrap_err();
    assert_eq!(refused.failure, VolumeFailure::OssfsRoot, "{refused:?}");
    stage.ossfs.allowed = AllowedPaths::default();
    std::os::unix::fs::symlink(&at, at.join("link")).unwrap();
    stage.ossfs.root = at.join("link/mnt");
    let refused = stage.provide(&bucket("a"), &[]).await.unwrap_err();
    assert_eq!(refused.failure, VolumeFailure::OssfsRoot);
    assert!(
        refused
            .reason
            .ends_with(&at.join("mnt").display().to_string()),
        "{}",
        refused.reason
    );
    assert_eq!(stage.mounts(), 0);
}

#[tokio::test]
async fn a_failed_mount_leaves_nothing() {
    for (script, words) in [
        ("echo no such bucket >&2; exit 1", "no such bucket"),
        ("exit 0", "mounted nothing"),
    ] {
        let stage = Stage::set();
        fake::install(stage.folder.path(), "ossfs2", script);
        let refused = stage.provide(&bucket("a"), &[]).await.unwrap_err();
        assert_eq!(refused.failure, VolumeFailure::OssfsMount);
        assert!(refused.reason.contains(words), "{}", refused.reason);
        assert!(!stage.root().join("data").exists());
        assert_eq!(stage.ossfs.own_mounts().await, [""; 0].map(PathBuf::from));
        let secrets = fs::read_dir(stage.folder.path().join("secrets")).unwrap();
        assert_eq!(secrets.count(), 0);
    }
}

#[tokio::test]
async fn a_process_that_the_engine_does_not_share_mounts_with_mounts_nothing() {
    let stage = Stage::set();
    let table = "22 1 0:21 / / rw shared:2 master:1 - ext4 d rw\n";
    fs::write(&stage.ossfs.table, table).unwrap();
    let refused = stage.provide(&bucket("a"), &[]).await.unwrap_err();
    assert_eq!(refused.failure, VolumeFailure::OssfsMount);
    assert!(
        refused.reason.contains("namespace of its own"),
        "{}",
        refused.reason
    );
    assert_eq!(stage.mounts(), 0);
}

#[tokio::test]
async fn a_mount_that_cannot_be_ended_is_tried_again() {
    let stage = Stage::set();
    let place = stage.root().join("data");
    stage.provide(&bucket("a"), &[]).await.unwrap();
    fake::install(stage.folder.path(), "fusermount", "echo busy >&2; exit 1");
    fake::install(stage.folder.path(), "umount", "exit 32");
    stage.ossfs.release(&place, &used(&[]), false).await;
    assert_eq!(stage.ossfs.own_mounts().await, std::slice::from_ref(&place));
    fake::install(stage.folder.path(), "fusermount", UNMOUNT);
    stage.ossfs.release(&place, &used(&[]), false).await;
    assert!(!stage.is_mounted(&place));
}

#[test]
fn a_path_below_the_root_belongs_to_a_bucket() {
    let stage = Stage::set();
    let bucket_of = |path: &str| stage.ossfs.bucket_of(&stage.root().join(path));
    assert_eq!(bucket_of("data/a").as_deref(), Some("data"));
    assert_eq!(bucket_of(".paths/data/0123").as_deref(), Some("data"));
    assert_eq!(bucket_of(""), None);
    assert_eq!(stage.ossfs.bucket_of(Path::new("/etc")), None);
}
