//! Reads which module of a crate uses which, from the tokens of its source: paths that begin with
//! `crate` or `super`, wherever they stand, also in macros.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::graph::{Graph, Place};

/// A use of something that is directly in the root of the crate.
struct Use {
    from: String,
    name: String,
    place: Place,
}

/// A file with one module of the crate; no segments for the root.
struct File {
    path: PathBuf,
    module: Vec<String>,
    /// Where the modules are that it declares.
    folder: PathBuf,
}

struct Scan<'a> {
    read: &'a dyn Fn(&Path) -> Option<String>,
    /// Modules that the root declares.
    modules: BTreeSet<String>,
    /// Names that the root takes from its modules, with the module of each.
    exported: BTreeMap<String, String>,
    uses: Vec<Use>,
    waiting: Vec<File>,
}

/// Adds the modules of the crate with this root, and the arrows between them.
pub(crate) fn scan(
    root: &Path,
    read: &dyn Fn(&Path) -> Option<String>,
    to: &mut Graph,
) -> Result<()> {
    let mut scan = Scan {
        read,
        modules: BTreeSet::new(),
        exported: BTreeMap::new(),
        uses: Vec::new(),
        waiting: vec![File {
            path: root.to_owned(),
            module: Vec::new(),
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
    scan.modules.iter().for_each(|name| to.module(name));
    for Use { from, name, place } in &scan.uses {
        let module = match scan.modules.contains(name) {
            true => Some(name),
            // What the root defines itself belongs to no module.
            false => scan.exported.get(name),
        };
        let module = module.filter(|name| scan.modules.contains(*name));
        if let Some(module) = module {
            to.arrow(from, module, place.clone());
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
                (TokenTree::Ident(word), after) if word == "use" && file.module.is_empty() => {
                    self.export(after);
                    after
                }
                (TokenTree::Ident(word), after) if word == "crate" || word == "super" => {
                    self.path(first, after, file);
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
        if file.module.is_empty() {
            self.modules.insert(name.to_owned());
        }
        let mut module = file.module.clone();
        module.push(name.to_owned());
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

    /// What the root takes from its modules: `use module::Name` and `use module::{Name, …}`.
    fn export(&mut self, path: &[TokenTree]) {
        let path = match path {
            [TokenTree::Ident(word), rest @ ..] if word == "crate" || word == "self" => {
                segment(rest).unwrap_or(path)
            }
            path => path,
        };
        let [TokenTree::Ident(module), rest @ ..] = path else {
            return;
        };
        if let Some(rest) = segment(rest) {
            for name in last_names(rest) {
                self.exported.insert(name, module.to_string());
            }
        }
    }

    /// A path, of which the first segment is read already.
    fn path(&mut self, first: &TokenTree, mut rest: &[TokenTree], file: &File) {
        let Some(own) = file.module.first() else {
            return;
        };
        let mut depth = match first.to_string() == "crate" {
            true => 0,
            false => file.module.len() - 1,
        };
        while let Some(after) = segment(rest) {
            match after {
                [TokenTree::Ident(word), after @ ..] if word == "super" => {
                    depth = depth.saturating_sub(1);
                    rest = after;
                }
                names if depth == 0 => {
                    let place = |token: &TokenTree| Place {
                        file: file.path.clone(),
                        line: token.span().start().line,
                    };
                    let uses = first_names(names).into_iter().map(|(name, token)| Use {
                        from: own.clone(),
                        name,
                        place: place(&token),
                    });
                    self.uses.extend(uses);
                    return;
                }
                _ => return,
            }
        }
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

/// The next segment, or that of each branch.
fn first_names(tokens: &[TokenTree]) -> Vec<(String, TokenTree)> {
    match tokens {
        [token @ TokenTree::Ident(name), ..] => vec![(name.to_string(), token.clone())],
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
            let branches = branches(group);
            branches.iter().flat_map(|b| first_names(b)).collect()
        }
        _ => Vec::new(),
    }
}

/// The names that a `use` brings, each as it is called from then on.
fn last_names(mut tokens: &[TokenTree]) -> Vec<String> {
    let mut last = None;
    loop {
        match tokens {
            [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
                let branches = branches(group);
                return branches.iter().flat_map(|b| last_names(b)).collect();
            }
            [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                return vec![name.to_string()];
            }
            [TokenTree::Ident(name), rest @ ..] => {
                last = Some(name.to_string());
                tokens = segment(rest).unwrap_or(rest);
            }
            _ => return last.into_iter().collect(),
        }
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
    let read = |path: &Path| {
        let name = path.strip_prefix("/src").ok()?;
        let found = files.iter().find(|(file, _)| Path::new(file) == name);
        found.map(|(_, text)| (*text).to_owned())
    };
    let mut graph = Graph::default();
    scan(Path::new("/src/lib.rs"), &read, &mut graph).unwrap();
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
fn a_module_without_a_file_is_an_error() {
    let read = |path: &Path| (path == Path::new("/src/lib.rs")).then(|| "mod a;".to_owned());
    let error = scan(Path::new("/src/lib.rs"), &read, &mut Graph::default()).unwrap_err();
    assert!(error.to_string().contains("no module a"), "{error}");
}
