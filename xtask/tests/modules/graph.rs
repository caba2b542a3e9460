//! Arrows between modules.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write,
    path::{Path, PathBuf},
};

/// Module to the modules that it uses.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Where one module uses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// The path of a module from the root of its crate; empty for the root.
pub(crate) type Level = Vec<String>;

/// The modules of a crate by their parent.
pub(crate) type Levels = BTreeMap<Level, Graph>;

/// The modules with one parent, and the first place of each arrow between them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, Place>>,
}

impl Graph {
    /// Adds a module.
    pub(crate) fn module(&mut self, name: &str) {
        self.arrows.entry(name.to_owned()).or_default();
    }

    /// Adds an arrow between two modules, unless they are one.
    pub(crate) fn arrow(&mut self, from: &str, to: &str, place: Place) {
        if from != to {
            self.module(to);
            let from = self.arrows.entry(from.to_owned()).or_default();
            from.entry(to.to_owned()).or_insert(place);
        }
    }

    /// Describes the shortest cycle: one arrow per line, each with its place.
    pub(crate) fn shortest_cycle(&self, root: &Path) -> Option<String> {
        let cycles = self.arrows.keys().filter_map(|start| self.way_back(start));
        let cycle = cycles.min_by_key(Vec::len)?;
        let mut text = String::new();
        for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let place = self.place(from, to, root);
            writeln!(text, "  {from} -> {to}  {place}").expect("strings take everything");
        }
        Some(text)
    }

    /// Finds the shortest cycle through `start`, beginning with it.
    fn way_back<'a>(&'a self, start: &'a str) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for to in self.arrows.get(at)?.keys().map(String::as_str) {
                if to == start {
                    let back = |at: &&'a str| before.get(at).copied();
                    let mut way: Vec<&str> = std::iter::successors(Some(at), back).collect();
                    way.reverse();
                    return Some(way);
                }
                if !before.contains_key(to) {
                    before.insert(to, at);
                    next.push_back(to);
                }
            }
        }
        None
    }

    /// Describes every difference from a list in a sentence.
    pub(crate) fn differences(&self, listed: &Arrows, root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for (from, to) in &self.arrows {
            let Some(allowed) = listed.get(from) else {
                found.push(format!("{from} is not listed"));
                continue;
            };
            let wrong = to.keys().filter(|to| !allowed.contains(*to));
            found.extend(wrong.map(|to| {
                let place = self.place(from, to, root);
                format!("{from} must not use {to}: {place}")
            }));
        }
        for (from, allowed) in listed {
            let Some(used) = self.arrows.get(from) else {
                found.push(format!("{from} is listed but is no module"));
                continue;
            };
            let unused = allowed.iter().filter(|to| !used.contains_key(*to));
            found.extend(unused.map(|to| format!("{from} does not use {to}")));
        }
        found
    }

    /// Formats the list for ARCHITECTURE.md: a module is below all modules that it uses.
    pub(crate) fn list(&self) -> String {
        let mut text = String::new();
        let mut done = BTreeSet::new();
        while done.len() < self.arrows.len() {
            let ready = |to: &BTreeMap<String, Place>| to.keys().all(|to| done.contains(to));
            let waiting = self.arrows.iter().filter(|(from, _)| !done.contains(*from));
            let next: Vec<_> = waiting.clone().filter(|(_, to)| ready(to)).collect();
            // In a cycle none is ready.
            let next = match next.is_empty() {
                true => waiting.collect(),
                false => next,
            };
            for (from, to) in &next {
                let to: Vec<&str> = to.keys().map(String::as_str).collect();
                let line = format!("{from} -> {}", to.join(", "));
                writeln!(text, "{}", line.trim_end()).expect("strings take everything");
            }
            let names = next.iter().map(|(from, _)| (*from).clone());
            done.extend(names.collect::<Vec<_>>());
        }
        text
    }

    fn place(&self, from: &str, to: &str, root: &Path) -> String {
        let place = &self.arrows[from][to];
        let file = place.file.strip_prefix(root).unwrap_or(&place.file);
        format!("{}:{}", file.display(), place.line)
    }
}

#[test]
fn the_shortest_cycle_is_reported_with_its_places() {
    let mut graph = Graph::default();
    for (line, (from, to)) in ["ab", "bc", "ca", "cd", "dc", "ee"]
        .into_iter()
        .map(|pair| pair.split_at(1))
        .enumerate()
    {
        let file = PathBuf::from(format!("/root/src/{from}.rs"));
        graph.arrow(from, to, Place { file, line });
    }
    let cycle = graph.shortest_cycle(Path::new("/root")).unwrap();
    assert_eq!(cycle, "  c -> d  src/c.rs:3\n  d -> c  src/d.rs:4\n");
    let mut line = Graph::default();
    for (from, to) in [("a", "b"), ("a", "c"), ("b", "c")] {
        let file = PathBuf::new();
        line.arrow(from, to, Place { file, line: 1 });
    }
    assert_eq!(line.shortest_cycle(Path::new("/")), None);
    assert_eq!(line.list(), "c ->\nb -> c\na -> b, c\n");
}

#[test]
fn every_kind_of_difference_is_found() {
    let mut graph = Graph::default();
    for (from, to) in [("a", "b"), ("a", "c"), ("new", "c")] {
        let file = PathBuf::from(format!("/root/{from}.rs"));
        graph.arrow(from, to, Place { file, line: 7 });
    }
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let listed = [("a", set(&["b", "d"])), ("c", set(&[])), ("gone", set(&[]))];
    let listed = listed.map(|(from, to)| (from.to_owned(), to)).into();
    assert_eq!(
        graph.differences(&listed, Path::new("/root")),
        [
            "a must not use c: a.rs:7",
            "b is not listed",
            "new is not listed",
            "a does not use d",
            "gone is listed but is no module",
        ]
    );
}
