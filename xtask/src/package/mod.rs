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
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::{
    debian::{Contents, Packing},
    elf::Elf,
    inventory::PROGRAMS,
    release::Release,
    tree::Tree,
};
use crate::{
    build,
    host::{self, Installer},
    process::query,
    repo::Repo,
    step::{notice, step},
};

/// Folder of the programs below that of the packages.
const PROGRAMS_FOLDER: &str = "bin";
/// Name of the file with the licences of others.
const NOTICES: &str = "THIRD-PARTY-NOTICES.txt";
/// 64-bit ARM, as Rust names it: also the folder of its programs below that of the others.
const ARM64: &str = "aarch64";
/// Runs programs for 64-bit ARM, and the package that has it.
const EMULATOR: (&str, &str) = ("qemu-aarch64-static", "qemu-user-static");
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
    /// Also an archive and a Debian package for 64-bit ARM
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
    let mut builds = vec![Build::of(std::env::consts::ARCH, programs.clone())];
    if options.arm64 && std::env::consts::ARCH != ARM64 {
        let programs = programs.join(ARM64);
        build::arm64(repo, &installer, &programs)?;
        builds.push(Build::of(ARM64, programs));
    }
    step("check that the programs are static", || {
        let programs = builds.iter().flat_map(Build::files);
        programs
            .into_iter()
            .try_for_each(|(architecture, file)| check_static(&file, architecture))
    })?;
    for build in &builds {
        build.try_out(&installer)?;
    }
    let release = Release::of(repo)?;
    let mut published = Vec::new();
    for build in &builds {
        let papers = Papers::of(repo, &release, &build.programs)?;
        if build.is_native() {
            published.extend(papers.write(&folder)?);
        }
        step(
            &format!("pack the archive for {}", build.architecture),
            || {
                let archive = archive(repo, &release, &papers, build);
                published.push(pack(&folder, &release, build.architecture, &archive)?);
                Ok(())
            },
        )?;
        let contents = papers.contents(&release, build);
        let package = step(
            &format!("pack the Debian package for {}", build.architecture),
            || {
                let work = folder.join("deb");
                debian::build(repo, &contents, Packing::Release, &work, &folder)
            },
        )?;
        let name = package.file_name();
        published.extend(name.map(|name| name.to_string_lossy().into_owned()));
    }
    sums::write(&folder, &published)?;
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// The programs for one architecture.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// As Rust names it.
    pub(crate) architecture: &'static str,
    /// Their folder.
    pub(crate) programs: PathBuf,
}

impl Build {
    /// Those in a folder.
    pub(crate) fn of(architecture: &'static str, programs: PathBuf) -> Self {
        Self {
            architecture,
            programs,
        }
    }

    fn is_native(&self) -> bool {
        self.architecture == std::env::consts::ARCH
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let programs = PROGRAMS.iter();
        programs
            .map(|it| (self.architecture, self.programs.join(it.name)))
            .collect()
    }

    /// Runs each program. Those for another architecture need an emulator; without one, they are
    /// reported as not tried.
    fn try_out(&self, installer: &Installer) -> Result<()> {
        if !self.is_native()
            && let Err(missing) = installer.program(EMULATOR.0, &[EMULATOR.1])
        {
            notice(&format!(
                "NOT TRIED: the programs for {}: {missing:#}",
                self.architecture
            ));
            return Ok(());
        }
        step(
            &format!("run the programs for {}", self.architecture),
            || {
                for (_, file) in self.files() {
                    let mut command = match self.is_native() {
                        true => Command::new(&file),
                        false => Command::new(EMULATOR.0),
                    };
                    if !self.is_native() {
                        command.arg(&file);
                    }
                    let said = query(command.arg("--version"))?;
                    ensure!(
                        said.contains(env!("CARGO_PKG_VERSION")),
                        "{} says {said}",
                        file.display()
                    );
                }
                Ok(())
            },
        )
    }
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
    pub(crate) fn contents<'a>(&'a self, release: &'a Release, build: &'a Build) -> Contents<'a> {
        Contents {
            release,
            build,
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

/// An archive: the programs, and how they are deployed.
fn archive(repo: &Repo, release: &Release, papers: &Papers, build: &Build) -> Tree {
    let top = archive_name(release, build.architecture);
    let mut tree = Tree::default();
    for program in PROGRAMS {
        let name = program.name;
        tree.copy(&format!("{top}/{name}"), 0o755, build.programs.join(name));
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
        let build = Build::of(ARM64, "/dist".into());
        let tree = archive(&repo, &release, &papers(), &build);
        let top = "opensandbox-1.2.3-linux-aarch64/";
        let files: Vec<_> = tree
            .files()
            .map(|path| path.strip_prefix(top).unwrap())
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
