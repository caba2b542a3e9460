//! `package`: what is published for users, in `target/package`. One commit makes the same files every
//! time, as far as the compilers do.

mod closure;
mod component;
mod crates;
pub(crate) mod debian;
mod elf;
mod inventory;
mod licence;
mod licence_texts;
mod notices;
mod npm;
pub(crate) mod release;
mod sbom;
mod sums;
mod system;
mod tree;
mod vendored;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;

use self::{
    debian::{Contents, Packing},
    elf::Elf,
    inventory::{EXECD, PROGRAMS},
    release::Release,
    tree::Tree,
};
use crate::{
    build::{self, Profile},
    host::{self, Installer},
    repo::Repo,
    step::step,
};

/// Folder of the programs below that of the packages.
const PROGRAMS_FOLDER: &str = "bin";
/// Name of the file with the licences of others.
const NOTICES: &str = "THIRD-PARTY-NOTICES.txt";
/// Architecture that execd is also built for, as Rust names it, and its program.
const ARM64: (&str, &str) = ("aarch64", "execd-arm64");
/// Files of `deploy/` in an archive, for a service and for containers.
const DEPLOYMENT: [&str; 7] = [
    "README.md",
    "compose.yaml",
    "config.docker.toml",
    "egress/Dockerfile",
    "server/Dockerfile",
    "server/config.toml",
    "systemd/opensandbox-server.service",
];

/// Options of `package`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Also an archive with execd for 64-bit ARM
    #[arg(long)]
    arm64: bool,
    /// Print what is missing on this machine instead of installing it
    #[arg(long)]
    no_install: bool,
}

/// Builds, checks and packs everything.
pub(crate) fn package(repo: &Repo, options: &Options) -> Result<ExitCode> {
    let installer = Installer::new(!options.no_install);
    host::require_all(host::missing_for_build(&installer))?;
    installer.program("dpkg-deb", &["dpkg"])?;
    let folder = repo.package();
    let programs = folder.join(PROGRAMS_FOLDER);
    remove_former(&folder)?;
    build::all_static(repo, &installer, &programs)?;
    if options.arm64 {
        build::arm64(repo, &installer, Profile::Release, &programs)?;
    }
    step("check that the programs are static", || {
        for program in PROGRAMS {
            check_static(&programs.join(program.name), std::env::consts::ARCH)?;
        }
        if options.arm64 {
            check_static(&programs.join(ARM64.1), ARM64.0)?;
        }
        Ok(())
    })?;
    let release = Release::of(repo)?;
    let papers = Papers::of(repo, &release, &programs)?;
    let mut published = papers.write(&folder)?;
    step("pack the archives", || {
        let archive = archive(repo, &release, &papers, &programs);
        published.push(pack(&folder, &release, std::env::consts::ARCH, &archive)?);
        if options.arm64 {
            let archive = archive_of_arm64(repo, &release, &papers, &programs);
            published.push(pack(&folder, &release, ARM64.0, &archive)?);
        }
        Ok(())
    })?;
    let contents = papers.contents(&release, &programs);
    let package = step("pack the Debian package", || {
        let work = folder.join("deb");
        debian::build(repo, &contents, Packing::Release, &work, &folder)
    })?;
    published.extend(
        package
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
    );
    sums::write(&folder, &published)?;
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Removes what an earlier run published, but not its programs, which may still be those of the
/// sources.
fn remove_former(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let removed = match path.is_dir() {
            true if path.ends_with(PROGRAMS_FOLDER) => Ok(()),
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Fails unless a program runs on any Linux of the architecture.
pub(crate) fn check_static(program: &Path, architecture: &str) -> Result<()> {
    let failed = || format!("{} cannot be published", program.display());
    let bytes = fs::read(program).with_context(failed)?;
    let elf = Elf::parse(&bytes).with_context(failed)?;
    elf.require_static(architecture).with_context(failed)
}

/// What is published about the programs: the licences of others, and bills of materials.
pub(crate) struct Papers {
    notices: String,
    bills: Vec<(String, String)>,
}

impl Papers {
    /// Collects them. A part whose licence the project does not allow is an error.
    pub(crate) fn of(repo: &Repo, release: &Release, programs: &Path) -> Result<Self> {
        step("list the parts of the programs with their licences", || {
            let inventories = inventory::of_release(repo)?;
            let mut bills = Vec::new();
            for inventory in &inventories {
                let name = inventory.program.name;
                let sha256 = sums::of_file(&programs.join(name))?;
                let bill = sbom::render(inventory, release, Some(&sha256))?;
                bills.push((format!("{name}.cdx.json"), bill));
            }
            Ok(Self {
                notices: notices::render(&inventories, release)?,
                bills,
            })
        })
    }

    /// What a Debian package is made from, with these papers.
    pub(crate) fn contents<'a>(&'a self, release: &'a Release, programs: &'a Path) -> Contents<'a> {
        Contents {
            release,
            programs,
            notices: &self.notices,
            bills: &self.bills,
        }
    }

    /// Writes them into a folder; returns the names of the files.
    fn write(&self, folder: &Path) -> Result<Vec<String>> {
        let notices = (NOTICES.to_owned(), self.notices.clone());
        let mut names = Vec::new();
        for (name, text) in self.bills.iter().chain([&notices]) {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            names.push(name.clone());
        }
        Ok(names)
    }
}

/// Name of an archive without its extension, and of the folder in it.
fn archive_name(release: &Release, architecture: &str) -> String {
    format!("opensandbox-{}-linux-{architecture}", release.version())
}

/// The archive for this machine's architecture: the programs, and how they are deployed.
fn archive(repo: &Repo, release: &Release, papers: &Papers, programs: &Path) -> Tree {
    let top = archive_name(release, std::env::consts::ARCH);
    let mut tree = Tree::default();
    for program in PROGRAMS {
        let name = program.name;
        tree.copy(&format!("{top}/{name}"), 0o755, programs.join(name));
    }
    for file in DEPLOYMENT {
        let from = repo.path("deploy").join(file);
        tree.copy(&format!("{top}/deploy/{file}"), 0o644, from);
    }
    for (name, bill) in &papers.bills {
        tree.add(&format!("{top}/{name}"), 0o644, bill.as_str());
    }
    add_licences(&mut tree, repo, papers, &top);
    tree
}

/// The archive for 64-bit ARM has execd alone.
fn archive_of_arm64(repo: &Repo, release: &Release, papers: &Papers, programs: &Path) -> Tree {
    let top = archive_name(release, ARM64.0);
    let mut tree = Tree::default();
    let program = programs.join(ARM64.1);
    tree.copy(&format!("{top}/{}", EXECD.name), 0o755, program);
    add_licences(&mut tree, repo, papers, &top);
    tree
}

fn add_licences(tree: &mut Tree, repo: &Repo, papers: &Papers, top: &str) {
    tree.copy(&format!("{top}/LICENSE"), 0o644, repo.path("LICENSE"));
    tree.copy(
        &format!("{top}/CHANGELOG.md"),
        0o644,
        repo.path("CHANGELOG.md"),
    );
    let notices = papers.notices.as_str();
    tree.add(&format!("{top}/{NOTICES}"), 0o644, notices);
}

/// Writes an archive; returns the name of its file.
fn pack(folder: &Path, release: &Release, architecture: &str, tree: &Tree) -> Result<String> {
    let name = format!("{}.tar.gz", archive_name(release, architecture));
    let path: PathBuf = folder.join(&name);
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    tree.write_archive(file, release.epoch())?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn papers() -> Papers {
        Papers {
            notices: "notices".to_owned(),
            bills: vec![("execd.cdx.json".to_owned(), "{}".to_owned())],
        }
    }

    #[test]
    fn an_archive_has_the_programs_and_how_they_are_deployed() {
        let repo = Repo::find().unwrap();
        let release = Release::at("1.2.3", 0);
        let tree = archive(&repo, &release, &papers(), Path::new("/dist"));
        let top = format!("opensandbox-1.2.3-linux-{}/", std::env::consts::ARCH);
        let files: Vec<_> = tree
            .files()
            .map(|path| path.strip_prefix(&top).unwrap())
            .collect();
        for file in [
            "opensandbox-server",
            "execd",
            "egress",
            "execd.cdx.json",
            "LICENSE",
            NOTICES,
        ] {
            assert!(files.contains(&file), "{file}: {files:?}");
        }
        for file in DEPLOYMENT {
            assert!(repo.path("deploy").join(file).is_file(), "{file}");
            assert!(files.contains(&&*format!("deploy/{file}")), "{file}");
        }
        let arm64 = archive_of_arm64(&repo, &release, &papers(), Path::new("/dist"));
        let programs = arm64.files().filter(|path| path.ends_with("/execd"));
        let programs: Vec<_> = programs.collect();
        assert_eq!(programs, ["opensandbox-1.2.3-linux-aarch64/execd"]);
    }

    #[test]
    fn only_the_programs_of_an_earlier_run_stay() {
        let folder = std::env::temp_dir().join(format!("xtask-former-{}", std::process::id()));
        for file in ["bin/execd", "deb/usr/old", "opensandbox-0.0.1.tar.gz"] {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        remove_former(&folder).unwrap();
        assert!(folder.join("bin/execd").exists());
        let left = fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 1);
        let written = papers().write(&folder).unwrap();
        assert_eq!(written, ["execd.cdx.json", NOTICES]);
        assert!(folder.join(NOTICES).exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_that_is_not_static_is_not_published() {
        let this = std::env::current_exe().unwrap();
        let bytes = fs::read(&this).unwrap();
        let is_static = Elf::parse(&bytes)
            .and_then(|elf| elf.require_static(std::env::consts::ARCH))
            .is_ok();
        assert_eq!(
            check_static(&this, std::env::consts::ARCH).is_ok(),
            is_static
        );
        let script = check_static(Path::new("/proc/self/status"), "x86_64").unwrap_err();
        assert!(format!("{script:#}").contains("no ELF file"), "{script:#}");
    }
}
