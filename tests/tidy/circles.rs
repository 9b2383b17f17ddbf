//! Checks that files of a crate do not import each other in circles, so that each can be read without the others.
//!
//! A file depends on each file where a reader of its imports and paths looks: the file of the module that the path
//! names and, if that module re-exports the name, each file up to the one that defines it. The root of a crate only
//! lists names, so a re-export there leads on. A re-export alone is not a use. Imports of tests do not count. Methods
//! are not seen: a child may implement methods on a type whose module calls them.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{files, split};

/// A module in its crate, or an item of a module.
type Path = Vec<String>;

/// The names that a file uses.
#[derive(Default)]
struct Module {
    paths: Vec<Path>,
    imports: BTreeMap<String, Path>,
    /// Its modules that are compiled for tests only.
    tests: BTreeSet<String>,
}

type Modules = BTreeMap<Path, Module>;

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in files(&["rs"]) {
        let place = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        let Some((name, path)) = place else { continue };
        if !path.split('/').any(|part| part == "tests" || part == "tests.rs") {
            let modules = crates.entry(name.to_owned()).or_default();
            modules.insert(module_path(path), module(&file.text));
        }
    }
    for (name, modules) in crates {
        let circles = circles(&modules);
        assert!(circles.is_empty(), "{name}: {circles:#?}");
    }
}

fn module_path(file: &str) -> Path {
    let path = file.trim_end_matches(".rs").split('/').map(str::to_owned);
    path.filter(|part| part != "lib" && part != "main").collect()
}

fn owned(path: &str) -> Path {
    path.split("::").map(str::to_owned).collect()
}

/// Paths such as `super::name`, words, and other characters one by one.
fn tokens(mut code: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    while let Some(first) = code.chars().next() {
        let end = if is_path(first) { code.find(|c| !is_path(c)) } else { Some(first.len_utf8()) };
        let (token, after) = code.split_at(end.unwrap_or(code.len()));
        found.push(token);
        code = after.trim_start();
    }
    found
}

/// The index after the item, attribute or import that begins at `at` and ends with one of `stops`.
fn end_of(tokens: &[&str], at: usize, stops: &[&str]) -> usize {
    let mut depth = 0_usize;
    let is_end = |token: &&str| {
        depth += usize::from(["{", "[", "("].contains(token));
        depth -= usize::from(["}", "]", ")"].contains(token) && depth > 0);
        depth == 0 && stops.contains(token)
    };
    tokens.iter().skip(at).position(is_end).map_or(tokens.len(), |length| at + length + 1)
}

fn module(source: &str) -> Module {
    let code = split(source).code;
    let tokens = tokens(code.trim_start());
    let (mut module, mut imports, mut exports) = (Module::default(), Vec::new(), Vec::new());
    let (mut words, mut at) = (BTreeSet::new(), 0);
    while let Some(token) = tokens.get(at) {
        let begin = at;
        at += 1;
        if *token == "#" {
            at = end_of(&tokens, begin, &["]"]);
            let attribute = &tokens[begin..at];
            if attribute.contains(&"cfg") && attribute.contains(&"test") {
                at = end_of(&tokens, at, &["}", ";"]);
                let named = tokens[begin..at].windows(2).filter(|pair| pair[0] == "mod");
                module.tests.extend(named.map(|pair| pair[1].to_owned()));
            }
        } else if *token == "use" {
            at = end_of(&tokens, begin, &[";"]);
            let is_export = begin > 0 && ["pub", ")"].contains(&tokens[begin - 1]);
            let list = if is_export { &mut exports } else { &mut imports };
            import(&tokens[begin + 1..at - 1], "", list);
        } else if *token == "mod" {
            at += 1;
        } else {
            let path = token.trim_matches(':');
            words.insert(path.split("::").next().unwrap_or_default());
            module.paths.extend(path.contains("::").then(|| owned(path)));
        }
    }
    // A re-export alone is not a use.
    let used = exports.iter().filter(|(name, _)| words.contains(&**name)).chain(&imports);
    module.paths.extend(used.map(|(_, path)| path.clone()));
    module.imports = imports.into_iter().chain(exports).collect();
    module
}

/// Adds the imports of a tree below a path, with their names.
fn import(tree: &[&str], above: &str, found: &mut Vec<(String, Path)>) {
    if let Some(open) = tree.iter().position(|token| *token == "{") {
        let (above, mut at) = (format!("{above}{}", tree[..open].concat()), open + 1);
        while at < tree.len() - 1 {
            let end = end_of(&tree[..tree.len() - 1], at, &[","]);
            import(tree[at..end].strip_suffix(&[","]).unwrap_or(&tree[at..end]), &above, found);
            at = end;
        }
    } else if let [path, rest @ ..] = tree {
        let path = format!("{above}{path}");
        let path = path.trim_end_matches("::self").trim_end_matches("::");
        let path = owned(path);
        let name = rest.last().copied().or(path.last().map(String::as_str)).unwrap_or_default();
        found.push((name.to_owned(), path));
    }
}

/// Adds the modules where a reader of `from` looks for what it names by a path; none if it is in another crate.
fn resolve(modules: &Modules, from: &Path, path: &[String], hops: usize, met: &mut BTreeSet<Path>) {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (mut at, mut rest) = (from[..from.len().saturating_sub(supers)].to_vec(), &path[supers..]);
    match path.first().map(String::as_str) {
        Some("crate") => (at, rest) = (Path::new(), &path[1..]),
        Some("self") => rest = &path[1..],
        _ => {}
    }
    let is_bare = rest.len() == path.len();
    while let Some((name, after)) = rest.split_first() {
        let child = [&at[..], std::slice::from_ref(name)].concat();
        let imported = modules.get(&at).and_then(|module| module.imports.get(name));
        match imported {
            _ if modules.contains_key(&child) => (at, rest) = (child, after),
            Some(import) if hops < 8 => {
                let path = [import, after].concat();
                resolve(modules, &at, &path, hops + 1, met);
                met.extend((!at.is_empty()).then_some(at));
                return;
            }
            _ if is_bare && at == *from => return,
            _ => break,
        }
    }
    met.insert(at);
}

/// The modules that lead to each other, each circle once.
fn circles(modules: &Modules) -> BTreeSet<BTreeSet<String>> {
    let is_of_tests = |path: &&Path| {
        let is_test =
            |at| modules.get(&path[..at]).is_some_and(|above| above.tests.contains(&path[at]));
        (0..path.len()).any(is_test)
    };
    let leads_to = |from: &Path| {
        let mut met = BTreeSet::new();
        modules[from].paths.iter().for_each(|path| resolve(modules, from, path, 0, &mut met));
        met.remove(from);
        met
    };
    let from = modules.keys().filter(|path| !is_of_tests(path));
    let edges: BTreeMap<&Path, BTreeSet<Path>> = from.map(|path| (path, leads_to(path))).collect();
    let reached = |from: &&Path| {
        let (mut found, mut open) = (BTreeSet::new(), vec![(*from).clone()]);
        while let Some(next) = open.pop() {
            let further = edges.get(&next).into_iter().flatten();
            open.extend(further.filter(|to| found.insert((*to).clone())).cloned());
        }
        found
    };
    let all: BTreeMap<&Path, BTreeSet<Path>> =
        edges.keys().map(|from| (*from, reached(from))).collect();
    let circle = |(from, reached): (&&Path, &BTreeSet<Path>)| -> BTreeSet<String> {
        let leads_back = |to: &&Path| all.get(to).is_some_and(|back| back.contains(*from));
        reached.iter().filter(leads_back).map(|path| path.join("/")).collect()
    };
    all.iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn a_circle_is_found_through_an_export_and_not_in_tests() {
    let found = |sources: &[(&str, &str)]| -> Vec<BTreeSet<String>> {
        let modules = sources.iter().map(|(file, source)| (module_path(file), module(source)));
        circles(&modules.collect()).into_iter().collect()
    };
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::{B, c::C};");
    let planted =
        [root, ("a.rs", "use crate::{x::Y, B as Z};"), ("b.rs", "fn f() { super::a::g() }")];
    assert_eq!(found(&planted), [["a", "b"].map(str::to_owned).into()]);
    let child = ("b/c.rs", "use super::B;");
    let tests = "#[cfg(test)]\nmod tests { use std::fs; use crate::a::g; }";
    assert_eq!(found(&[root, ("a.rs", "use crate::C;"), ("b.rs", tests), child]), []);
    let through_root = ("a.rs", "use crate::C;");
    let named = ("b.rs", "pub use c::C; use crate::a::f;");
    assert_eq!(found(&[root, through_root, named, ("b/c.rs", "")]), []);
    let through_parent = ("a.rs", "use crate::b::C;");
    assert_eq!(
        found(&[root, through_parent, named, ("b/c.rs", "")]),
        [["a", "b"].map(str::to_owned).into()]
    );
    let definition = ("b/c.rs", "use crate::a::f;");
    let renamed = ("b.rs", "pub use c::D as C;");
    assert_eq!(
        found(&[root, through_parent, renamed, definition]),
        [["a", "b/c"].map(str::to_owned).into()]
    );
    let parent = ("b.rs", "mod c; use self::c::{self, C};");
    assert_eq!(found(&[root, parent, child]), [["b", "b/c"].map(str::to_owned).into()]);
}
