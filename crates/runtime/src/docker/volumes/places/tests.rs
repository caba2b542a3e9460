//! Directories that are compared, on real ones.

use std::{collections::BTreeMap, fs::File};

use super::*;

fn place(path: &Path) -> Place {
    let identity = identity(path).unwrap();
    let path = path.to_owned();
    Place::of(Found { path, identity }).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    (folder, root)
}

#[test]
fn every_directory_above_is_found_up_to_the_root_of_the_host() {
    let (_folder, root) = folder();
    let at = root.join("a/b");
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("file"), "").unwrap();
    for path in [at.clone(), at.join("file")] {
        let above = place(&path).above;
        let all: Vec<Identity> = path
            .ancestors()
            .skip(1)
            .map(|it| identity(it).unwrap())
            .collect();
        let first = all.iter().filter(|it| above.contains(it));
        assert_eq!(first.count(), all.len(), "{above:?} {all:?}");
        assert_eq!(above[0], all[0]);
    }
}

#[test]
fn what_is_above_on_another_path_counts_as_well() {
    let (_folder, root) = folder();
    fs::create_dir_all(root.join("a/sub/deep")).unwrap();
    // In place of a mount, which takes root: a link leads to the same directory, too.
    std::os::unix::fs::symlink(root.join("a/sub"), root.join("b")).unwrap();
    let file = root.join("mountinfo");
    let root = root.display();
    let text = format!(
        "22 1 8:1 / / rw - ext4 /dev/vda rw\n30 22 8:1 {root}/a/sub {root}/b rw - ext4 /dev/vda rw\n"
    );
    fs::write(&file, text).unwrap();
    let table = MountTable::read(&file).unwrap();
    let at = |name: &str| PathBuf::from(format!("{root}/{name}"));
    let upper = identity(&at("a")).unwrap();
    assert!(above(&at("b/deep"), &table).unwrap().contains(&upper));
    // An entry whose directory is another one now.
    fs::rename(at("a/sub"), at("a/gone")).unwrap();
    fs::create_dir_all(at("c/deep")).unwrap();
    fs::remove_file(at("b")).unwrap();
    std::os::unix::fs::symlink(at("c"), at("b")).unwrap();
    assert!(!above(&at("b/deep"), &table).unwrap().contains(&upper));
}

#[test]
fn a_path_below_too_many_directories_is_refused() {
    let (_folder, root) = folder();
    let depth = root.components().count() - 1;
    let deepest = (depth..MOST_ABOVE).fold(root, |path, _| path.join("d"));
    fs::create_dir_all(deepest.join("d")).unwrap();
    let found = |path: PathBuf| {
        let identity = identity(&path).unwrap();
        Place::of(Found { path, identity })
    };
    let taken = found(deepest.clone());
    assert!(taken.is_ok(), "{taken:?}");
    let refused = found(deepest.join("d"));
    assert!(matches!(refused, Err(Trouble::TooDeep(_))), "{refused:?}");
}

#[test]
fn the_upper_of_two_directories_decides_by_its_write_access() {
    let (_folder, root) = folder();
    fs::create_dir_all(root.join("x/a")).unwrap();
    let held = |name: &str, writes| place(&root.join(name)).held(writes);
    for (new, writes, other, others, want) in [
        ("x/a", true, "x", true, Some(Overlap::Below)),
        ("x/a", false, "x", true, Some(Overlap::Below)),
        ("x/a", true, "x", false, None),
        ("x", true, "x/a", true, Some(Overlap::Above)),
        ("x", true, "x/a", false, Some(Overlap::Above)),
        ("x", false, "x/a", true, None),
        ("x", true, "x", true, None),
    ] {
        let overlap = held(new, writes).overlap(&held(other, others));
        assert_eq!(overlap, want, "{new} {writes} {other} {others}");
        let paths = (root.join(new), root.join(other));
        let by_path = overlap_of_paths((&paths.0, writes), (&paths.1, others));
        assert_eq!(by_path, want, "{new} {writes} {other} {others}");
    }
}

#[test]
fn a_file_system_below_a_read_only_directory_may_be_written_to() {
    let of = |identity, above: &[Identity]| Held {
        writes: false,
        identity,
        above: above.to_vec(),
    };
    let reader = of((1, 5), &[(1, 2)]);
    let plain = of((1, 9), &[(1, 7), (1, 5), (1, 2)]);
    assert_eq!(plain.overlap(&reader), None);
    let on_another = of((2, 9), &[(2, 1), (1, 5), (1, 2)]);
    assert_eq!(on_another.overlap(&reader), Some(Overlap::Below));
    // The directory of the file system itself is in its place by the host's mount.
    let whole = of((2, 1), &[(1, 5), (1, 2)]);
    assert_eq!(whole.overlap(&reader), None);
}

#[test]
fn a_note_is_read_for_its_own_sandbox_and_version_only() {
    let (_folder, root) = folder();
    let id = SandboxId::from("a");
    let held = vec![place(&root).held(true), place(&root).held(false)];
    let text = note(&id, held.clone());
    assert_eq!(read_note(&id, &text), Some(held));
    assert_eq!(read_note(&SandboxId::from("b"), &text), None, "of an image");
    let later = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_ne!(later, text);
    assert_eq!(read_note(&id, &later), None);
    assert_eq!(read_note(&id, "[]"), None);
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((it ^ (it >> 31)) % u64::try_from(sides).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.roll(all.len())])
    }
}

/// A sandbox with one directory. Its note is all that a server knows of it.
struct Running {
    id: SandboxId,
    note: String,
    writes: bool,
    identity: Identity,
    /// As a mount does, it keeps the directory's number from being used again.
    _mount: File,
}

/// A tree of directories, and the sandboxes that have some.
struct World {
    dice: Dice,
    root: PathBuf,
    running: Vec<Running>,
    made: usize,
}

impl World {
    /// All directories, by their numbers.
    fn tree(&self) -> BTreeMap<Identity, PathBuf> {
        let mut tree = BTreeMap::new();
        let mut next = vec![self.root.clone()];
        while let Some(path) = next.pop() {
            let inner = fs::read_dir(&path).unwrap();
            next.extend(inner.map(|it| it.unwrap().path()));
            tree.insert(identity(&path).unwrap(), path);
        }
        tree
    }

    /// Some directory below one, or that one itself.
    fn below(&mut self, top: &Path) -> PathBuf {
        let tree = self.tree();
        let inner: Vec<&PathBuf> = tree.values().filter(|it| it.starts_with(top)).collect();
        (*self.dice.pick(&inner).unwrap()).clone()
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("d{}", self.made)
    }

    /// Makes, moves, exchanges or removes directories, all within one.
    fn change(&mut self, top: &Path) {
        let (one, other) = (self.below(top), self.below(top));
        match self.dice.roll(4) {
            0 => fs::create_dir(one.join(self.new_name())).unwrap(),
            1 if one != *top && fs::read_dir(&one).unwrap().next().is_none() => {
                fs::remove_dir(&one).unwrap();
            }
            2 if one != *top && !other.starts_with(&one) => {
                fs::rename(&one, other.join(self.new_name())).unwrap();
            }
            3 if one != *top && other != *top => {
                if one.starts_with(&other) || other.starts_with(&one) {
                    return;
                }
                let aside = top.join(self.new_name());
                fs::rename(&one, &aside).unwrap();
                fs::rename(&other, &one).unwrap();
                fs::rename(&aside, &other).unwrap();
            }
            _ => {}
        }
    }

    /// A sandbox with write access changes what is in its directory, wherever that is.
    fn change_by_sandbox(&mut self) {
        let tree = self.tree();
        let writers = self.running.iter().filter(|it| it.writes);
        let tops: Vec<&PathBuf> = writers.filter_map(|it| tree.get(&it.identity)).collect();
        if let Some(top) = self.dice.pick(&tops) {
            self.change(top);
        }
    }

    /// Mounts some directory, unless it is refused. Returns how it overlaps with others by what was noted,
    /// and by where all of them are.
    fn mount(&mut self) -> [Vec<Overlap>; 2] {
        let root = self.root.clone();
        let path = self.below(&root);
        let writes = self.dice.roll(3) > 0;
        let held = place(&path).held(writes);
        let notes = self.running.iter();
        let notes = notes.flat_map(|it| read_note(&it.id, &it.note).unwrap());
        let noted: Vec<Overlap> = notes.filter_map(|other| held.overlap(&other)).collect();
        let tree = self.tree();
        let real = self.running.iter().filter_map(|it| {
            let other = tree.get(&it.identity)?;
            overlap_of_paths((&path, writes), (other, it.writes))
        });
        let real = real.collect();
        if noted.is_empty() {
            let id = SandboxId::new(self.new_name());
            self.running.push(Running {
                note: note(&id, vec![held]),
                id,
                writes,
                identity: identity(&path).unwrap(),
                _mount: File::open(&path).unwrap(),
            });
        }
        [noted, real]
    }
}

/// Runs worlds of sandboxes, and checks each mount. The operator may move directories, too.
fn run(operator_moves: bool, check: impl Fn(&[Overlap], &[Overlap]) -> bool) {
    let mut refusals = 0;
    for seed in 0..30 {
        let (_folder, root) = folder();
        let mut world = World {
            dice: Dice(seed),
            root,
            running: Vec::new(),
            made: 0,
        };
        for step in 0..120 {
            match world.dice.roll(10) {
                0..4 => {
                    let [noted, real] = world.mount();
                    refusals += usize::from(!noted.is_empty());
                    assert!(
                        check(&noted, &real),
                        "seed {seed}, step {step}: {noted:?} by notes, {real:?} in fact"
                    );
                }
                4 if !world.running.is_empty() => {
                    let ended = world.dice.roll(world.running.len());
                    world.running.swap_remove(ended);
                }
                5 => {
                    let top = world.root.clone();
                    let parent = world.below(&top);
                    fs::create_dir(parent.join(world.new_name())).unwrap();
                }
                6 if operator_moves => {
                    let top = world.root.clone();
                    world.change(&top);
                }
                _ => world.change_by_sandbox(),
            }
        }
    }
    assert!(refusals > 100, "{refusals}");
}

#[test]
fn notes_say_what_is_so_whatever_sandboxes_rename() {
    run(false, |noted, real| noted == real);
}

#[test]
fn no_directory_is_mounted_below_a_writable_one_after_any_rename() {
    run(true, |noted, real| {
        !noted.is_empty() || !real.contains(&Overlap::Below)
    });
}
