//! Reads which module of a crate uses which, from the tokens of its source: paths that begin with
//! `crate` or `super`, wherever they stand, also in macros.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::graph::{Level, Levels, Place};

/// Number of re-exports through which a path is followed.
const REEXPORTS: usize = 16;

/// Keywords that an item's name follows.
const ITEMS: [&str; 8] = [
    "const", "enum", "fn", "static", "struct", "trait", "type", "union",
];

/// Segments of a path from the root of the crate; none for the root.
type Segments = Vec<String>;

/// A use of a path.
struct Use {
    from: Segments,
    path: Segments,
    is_glob: bool,
    place: Place,
}

/// A file with one module of the crate.
struct File {
    path: PathBuf,
    module: Segments,
    /// Where the modules are that it declares.
    folder: PathBuf,
}

struct Scan<'a> {
    read: &'a dyn Fn(&Path) -> Option<String>,
    modules: BTreeSet<Segments>,
    /// Names that a module imports, with the path of each.
    imported: BTreeMap<Segments, BTreeMap<String, Segments>>,
    /// Names of the items in a module.
    defined: BTreeMap<Segments, BTreeSet<String>>,
    /// Modules of which a module imports all names.
    globs: BTreeMap<Segments, Vec<Segments>>,
    uses: Vec<Use>,
    waiting: Vec<File>,
}

/// Adds the modules of the crate with this root, and the arrows between those with one parent.
///
/// # Errors
/// A module has no file, or imports all names of a module around it, which hides what it uses.
pub(crate) fn scan(
    root: &Path,
    read: &dyn Fn(&Path) -> Option<String>,
    to: &mut Levels,
) -> Result<()> {
    let mut scan = Scan {
        read,
        modules: BTreeSet::new(),
        imported: BTreeMap::new(),
        defined: BTreeMap::new(),
        globs: BTreeMap::new(),
        uses: Vec::new(),
        waiting: vec![File {
            path: root.to_owned(),
            module: Segments::new(),
            folder: root.parent().context("a file has a folder")?.to_owned(),
        }],
    };
    while let Some(file) = scan.waiting.pop() {
        let text = read(&file.path).with_context(|| format!("no {}", file.path.display()))?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| anyhow!("{}: {error}", file.path.display()))?;
        scan.tokens(tokens, &file)?;
    }
    to.entry(Level::default()).or_default();
    for module in &scan.modules {
        let (name, parent) = module.split_last().context("the root is not declared")?;
        to.entry(parent.to_vec()).or_default().module(name);
    }
    for used in &scan.uses {
        if used.is_glob && scan.is_hiding(used) {
            let Place { file, line } = &used.place;
            bail!(
                "{}:{line} imports all names of {}: name those that it uses",
                file.display(),
                ["crate"]
                    .into_iter()
                    .chain(used.path.iter().map(String::as_str))
                    .collect::<Vec<_>>()
                    .join("::"),
            );
        }
        if let Some((level, sibling)) = scan.sibling(used) {
            let own = &used.from[level.len()];
            let graph = to.entry(level).or_default();
            graph.arrow(own, &sibling, used.place.clone());
        }
    }
    Ok(())
}

impl Scan<'_> {
    fn tokens(&mut self, tokens: TokenStream, file: &File) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let Some((first, after)) = rest.split_first() {
            rest = match (first, after) {
                (TokenTree::Punct(hash), [TokenTree::Group(attribute), item @ ..])
                    if hash.as_char() == '#' =>
                {
                    if is_for_tests(attribute) {
                        after_item(item)
                    } else {
                        self.tokens(attribute.stream(), file)?;
                        item
                    }
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), body, after @ ..])
                    if word == "mod" =>
                {
                    self.module(&name.to_string(), body, file)?;
                    after
                }
                (TokenTree::Ident(word), after) if word == "use" => {
                    self.import(after, file);
                    after
                }
                (TokenTree::Ident(word), after) if word == "crate" || word == "super" => {
                    if let Some(after) = segment(after) {
                        self.path(&word.to_string(), after, file);
                    }
                    after
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), ..])
                    if ITEMS.contains(&word.to_string().as_str()) =>
                {
                    let defined = self.defined.entry(file.module.clone()).or_default();
                    defined.insert(name.to_string());
                    after
                }
                (TokenTree::Group(group), after) => {
                    self.tokens(group.stream(), file)?;
                    after
                }
                _ => after,
            };
        }
        Ok(())
    }

    /// `mod name;` or `mod name { … }`.
    fn module(&mut self, name: &str, body: &TokenTree, file: &File) -> Result<()> {
        let mut module = file.module.clone();
        module.push(name.to_owned());
        self.modules.insert(module.clone());
        let folder = file.folder.join(name);
        if let TokenTree::Group(body) = body {
            let inner = File {
                path: file.path.clone(),
                module,
                folder,
            };
            return self.tokens(body.stream(), &inner);
        }
        let candidates = [folder.with_extension("rs"), folder.join("mod.rs")];
        let path = candidates
            .into_iter()
            .find(|path| (self.read)(path).is_some())
            .with_context(|| format!("{} has no module {name}", file.path.display()))?;
        self.waiting.push(File {
            path,
            module,
            folder,
        });
        Ok(())
    }

    /// `use path::{Name, …}`: the names are the module's own from then on.
    fn import(&mut self, path: &[TokenTree], file: &File) {
        let (base, rest) = match path {
            [TokenTree::Ident(word), rest @ ..] if word == "crate" || word == "super" => {
                (around(&word.to_string(), file), segment(rest))
            }
            [TokenTree::Ident(word), rest @ ..] if word == "self" => {
                (file.module.clone(), segment(rest))
            }
            path => (file.module.clone(), Some(path)),
        };
        let leaves = rest.map(|rest| leaves(rest, &base)).unwrap_or_default();
        let imported = self.imported.entry(file.module.clone()).or_default();
        for leaf in leaves {
            if leaf.is_glob {
                let globs = self.globs.entry(file.module.clone()).or_default();
                globs.push(leaf.path);
            } else if let Some(name) = leaf.name {
                imported.entry(name).or_insert(leaf.path);
            }
        }
    }

    /// A path, of which the first segment is read already.
    fn path(&mut self, first: &str, rest: &[TokenTree], file: &File) {
        let leaves = leaves(rest, &around(first, file));
        self.uses
            .extend(leaves.into_iter().map(|leaf| leaf.in_file(file)));
    }

    /// The sibling that a use reaches into, of the module or of one around it, and their parent.
    fn sibling(&self, used: &Use) -> Option<(Segments, String)> {
        let mut path = used.path.clone();
        let mut depth = 0;
        let mut followed = 0;
        while depth < path.len() {
            let (parent, to) = (&path[..depth], &path[..=depth]);
            if used.from.starts_with(to) {
                depth += 1;
            } else if self.modules.contains(to) {
                // A module may use what is below it.
                let is_sibling = used.from.len() > depth;
                return is_sibling.then(|| (parent.to_vec(), path[depth].clone()));
            } else {
                // What the parent defines itself belongs to no sibling.
                let source = self.source(parent, &path[depth])?;
                path = [&source, &path[depth + 1..]].concat();
                depth = 0;
                followed += 1;
                if followed > REEXPORTS {
                    return None;
                }
            }
        }
        None
    }

    /// The path from which a module imports a name.
    fn source(&self, module: &[String], name: &str) -> Option<Segments> {
        let imports = |module: &[String]| self.imported.get(module)?.get(name).cloned();
        let defines = |module: &[String]| self.defined.get(module)?.get(name).map(|_| ());
        imports(module).or_else(|| {
            if defines(module).is_some() {
                return None;
            }
            let mut globs = self.globs.get(module)?.iter();
            globs
                .find(|glob| defines(glob).is_some() || imports(glob).is_some())
                .map(|glob| [glob, &[name.to_owned()][..]].concat())
        })
    }

    /// Whether a glob imports the names of a module around its own.
    fn is_hiding(&self, used: &Use) -> bool {
        let is_module = used.path.is_empty() || self.modules.contains(&used.path);
        is_module && used.from.starts_with(&used.path)
    }
}

/// The module that `crate` or `super` names.
fn around(word: &str, file: &File) -> Segments {
    match file.module.split_last() {
        Some((_, parent)) if word == "super" => parent.to_vec(),
        _ => Segments::new(),
    }
}

/// What follows `::`.
fn segment(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(one), TokenTree::Punct(two), rest @ ..]
            if one.as_char() == ':' && two.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

/// The branches of a group in a `use`.
fn branches(group: &Group) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
    tokens.split(is_comma).map(<[_]>::to_vec).collect()
}

/// One path of a `use` or of an expression.
struct Leaf {
    path: Segments,
    /// What it is called from then on.
    name: Option<String>,
    is_glob: bool,
    line: usize,
}

impl Leaf {
    fn in_file(self, file: &File) -> Use {
        Use {
            from: file.module.clone(),
            path: self.path,
            is_glob: self.is_glob,
            place: Place {
                file: file.path.clone(),
                line: self.line,
            },
        }
    }
}

/// The paths that begin with `base` and go on with these tokens.
fn leaves(mut tokens: &[TokenTree], base: &[String]) -> Vec<Leaf> {
    let mut path = base.to_vec();
    let mut line = tokens.first().map_or(0, |token| token.span().start().line);
    loop {
        let (rest, is_glob) = match tokens {
            [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
                let branches = branches(group);
                return branches.iter().flat_map(|b| leaves(b, &path)).collect();
            }
            [TokenTree::Ident(word), rest @ ..] => {
                line = word.span().start().line;
                match word.to_string().as_str() {
                    "self" => {}
                    "super" => drop(path.pop()),
                    name => path.push(name.to_owned()),
                }
                (rest, false)
            }
            [TokenTree::Punct(mark), ..] if mark.as_char() == '*' => (&[][..], true),
            [] if path == base => return Vec::new(),
            _ => (&[][..], false),
        };
        if let Some(rest) = segment(rest) {
            tokens = rest;
            continue;
        }
        let name = match rest {
            [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                Some(name.to_string())
            }
            _ => path.last().cloned(),
        };
        return vec![Leaf {
            path,
            name,
            is_glob,
            line,
        }];
    }
}

/// Whether an attribute keeps its item for tests: `cfg(test)`, `cfg(any(test, …))`.
fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(word), TokenTree::Group(condition)] if word == "cfg" => {
            names_test(condition.stream())
        }
        _ => false,
    }
}

fn names_test(condition: TokenStream) -> bool {
    let mut negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(word) => {
            negated = word == "not";
            word == "test"
        }
        TokenTree::Group(group) => !negated && names_test(group.stream()),
        _ => false,
    })
}

/// What follows an item. A semicolon ends it, or a body in braces if it is one that has a body; a
/// comma ends a field, a variant or an arm.
fn after_item(mut tokens: &[TokenTree]) -> &[TokenTree] {
    let keyword = loop {
        tokens = match tokens {
            [TokenTree::Punct(_), TokenTree::Group(_attribute), rest @ ..] => rest,
            [
                TokenTree::Ident(public),
                TokenTree::Group(_where),
                rest @ ..,
            ] if public == "pub" => rest,
            [TokenTree::Ident(public), rest @ ..] if public == "pub" => rest,
            [keyword, ..] => break keyword.to_string(),
            [] => return tokens,
        };
    };
    let is_function = matches!(tokens, [_, TokenTree::Ident(name), ..] if name == "fn");
    let (has_body, has_comma) = match keyword.as_str() {
        "use" | "static" | "type" | "let" => (false, false),
        "const" => (is_function, false),
        "fn" | "async" | "unsafe" | "extern" | "mod" | "struct" | "enum" | "union" | "trait"
        | "impl" | "macro_rules" => (true, false),
        _ => (true, true),
    };
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(mark) => mark.as_char() == ';' || has_comma && mark.as_char() == ',',
        TokenTree::Group(body) => has_body && body.delimiter() == Delimiter::Brace,
        _ => false,
    };
    let end = tokens.iter().position(ends);
    end.map_or(&[], |end| &tokens[end + 1..])
}

fn scanned(files: &[(&str, &str)]) -> Result<Levels> {
    let read = |path: &Path| {
        let name = path.strip_prefix("/src").ok()?;
        let found = files.iter().find(|(file, _)| Path::new(file) == name);
        found.map(|(_, text)| (*text).to_owned())
    };
    let mut levels = Levels::new();
    scan(Path::new("/src/lib.rs"), &read, &mut levels)?;
    Ok(levels)
}

#[test]
fn arrows_are_found_wherever_they_stand() {
    let files = [
        (
            "lib.rs",
            "mod a; pub mod b; mod c; mod d; mod e; #[cfg(test)] mod t;\n\
             pub use c::{Kept, inner::Given as Taken}; pub struct Own;",
        ),
        (
            "a.rs",
            "//! crate::e\nuse crate::{Taken, b::{self, x}};\nmod inner;\n\
             /* super::e */ const TEXT: &str = \"crate::e\";",
        ),
        (
            "a/inner.rs",
            "use super::y;\n\nfn f() { log!(\"{}\", super::super::d::g()); }\n\
             mod deep { use super::super::super::Own; use super::z; }",
        ),
        (
            "b/mod.rs",
            "#[cfg(test)]\nmod tests { use crate::e::X; }\n\
             #[cfg(any(test, fuzzing))] pub mod gone;\n\
             #[cfg(test)] #[expect(dead_code)] pub(crate) use crate::{a, e};\n\
             struct S { #[cfg(test)] e: crate::e::E<u8, u8>, c: crate::c::inner::C }\n\
             #[cfg(test)] const fn f<A, B>() -> u8 { crate::e::F }\n\
             #[cfg(not(test))] use crate::Kept;\nuse crate::b::own;",
        ),
        ("c.rs", "pub(crate) struct Kept; pub(super) mod inner {}"),
        ("d.rs", ""),
        ("e.rs", "use std::{super_, a};"),
    ];
    let levels = scanned(&files).unwrap();
    let graph = &levels[&Level::default()];
    assert_eq!(graph.list(), "c ->\nd ->\ne ->\nb -> c\na -> b, c, d\n");
    let wrong = graph.differences(
        &[("a", "b, c"), ("b", "c"), ("c", ""), ("d", ""), ("e", "")]
            .map(|(from, to)| {
                let to = to.split(", ").filter(|to| !to.is_empty());
                (from.to_owned(), to.map(str::to_owned).collect())
            })
            .into(),
        Path::new("/src"),
    );
    assert_eq!(wrong, ["a must not use d: a/inner.rs:3"]);
}

#[test]
fn a_cycle_is_found_at_every_level() {
    let nested = |own: &'static str, x: &'static str, deep: &'static str, y: &'static str| {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", own),
            ("a/x/mod.rs", x),
            ("a/x/deep.rs", deep),
            ("a/y.rs", y),
        ];
        let levels = scanned(&files).unwrap();
        let cycle = |path: &[&str]| {
            let level: Level = path.iter().map(|&name| name.to_owned()).collect();
            levels[&level].shortest_cycle(Path::new("/src"))
        };
        assert_eq!(cycle(&[]), None);
        cycle(&["a"])
    };
    let found = "  x -> y  a/x/deep.rs:2\n  y -> x  a/y.rs:1\n";
    for (own, deep, y) in [
        // By `super`, and by the whole path.
        ("", "\nuse super::super::y::Y;", "use super::x::X;"),
        (
            "",
            "\nuse crate::{a::{self, y::Y}};",
            "fn f() { crate::a::x::f() }",
        ),
        // By names that the parent takes from its modules.
        (
            "pub use self::y::{Y as Z, W}; use x::X;",
            "\nuse crate::a::Z;",
            "use super::X;",
        ),
    ] {
        let own = format!("mod x; mod y; {own} pub struct Own;").leak();
        assert_eq!(
            nested(own, "mod deep;", deep, y).as_deref(),
            Some(found),
            "{own}"
        );
    }
    // By names that the parent takes from all of a module.
    let own = "mod x; mod y; pub use self::{x::*, y::*}; pub struct Own; struct Z;";
    let y = "use super::{Own, X}; pub fn f() {}";
    let deep = "\nfn g() { crate::a::f() } use crate::a::{Own, Z};";
    let x = "mod deep; pub enum X {} struct Own;";
    assert_eq!(nested(own, x, deep, y).as_deref(), Some(found));
    // A parent and its children may use each other, and tests may use everything.
    let own = "mod x; mod y; use x::X; fn f() { y::f() } struct Own;";
    let y = "use super::{Own, self as parent}; #[cfg(test)] mod tests { use super::super::x::X; }";
    let x = "mod deep; use super::y::Y; use deep::D; struct Own;";
    assert_eq!(nested(own, x, "use super::{Own, super::y::W};", y), None);
}

#[test]
fn a_glob_of_a_module_around_is_an_error() {
    for x in [
        "use super::*;",
        "use crate::*;",
        "use crate::{a::{self, *}};",
    ] {
        let error = scanned(&[("lib.rs", "mod a;"), ("a.rs", "mod x;"), ("a/x.rs", x)]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(":1 imports all names of crate"), "{error}");
    }
    let x = "use super::Kind::*; use std::io::*; use crate::b::*;\n\
             #[cfg(test)] mod tests { use super::*; }";
    let files = [("lib.rs", "mod a; mod b;"), ("a.rs", "mod x; enum Kind {}")];
    let levels = scanned(&[&files[..], &[("a/x.rs", x), ("b.rs", "")]].concat()).unwrap();
    assert_eq!(levels[&Level::default()].list(), "b ->\na -> b\n");
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let read = |path: &Path| (path == Path::new("/src/lib.rs")).then(|| "mod a;".to_owned());
    let error = scan(Path::new("/src/lib.rs"), &read, &mut Levels::new()).unwrap_err();
    assert!(error.to_string().contains("no module a"), "{error}");
}
