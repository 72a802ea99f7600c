//! The answers to claude's permission prompts.
//!
//! Commands are always allowed: they run in the box. Files may be written in the workdir and the session's scratch, by
//! where the path really leads. What a project's tools would run *here*, as the user, the next time the user works in it
//! (`.git/hooks`, `.claude`, `.mcp.json`) is not written by claude's own tools; a command in the box may still write it,
//! and what the user starts here later is the user's. This is a check of words before the fact; what holds is the fence.

use crate::path::resolve;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Component, Path, PathBuf};

/// What claude asks: may this tool run with this input.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Question {
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) input: Map<String, Value>,
    #[serde(default)]
    pub(super) tool_use_id: String,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    /// With the words the agent reads.
    Deny(String),
}

/// Where a session's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// Whether claude runs in the box. There its file tools see what its commands see, and so may read as they may.
    pub(super) boxed: bool,
    /// Whether they are on another machine than this one, whose paths cannot be followed from here.
    pub(super) elsewhere: bool,
    pub(super) workdir: PathBuf,
    pub(super) scratch: PathBuf,
    /// Where claude keeps long outputs, to read them again.
    pub(super) results: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Always,
    /// By where the path in this key of the input leads.
    Writes(&'static str),
    Reads(&'static str),
    Never(&'static str),
}

/// What is not here is denied.
const TOOLS: &[(&str, Rule)] = &[
    ("Bash", Rule::Always),
    ("BashOutput", Rule::Always),
    ("KillShell", Rule::Always),
    ("Monitor", Rule::Always),
    ("TaskOutput", Rule::Always),
    ("TaskStop", Rule::Always),
    ("Agent", Rule::Always),
    ("Task", Rule::Always),
    ("TodoWrite", Rule::Always),
    ("TaskCreate", Rule::Always),
    ("TaskGet", Rule::Always),
    ("TaskList", Rule::Always),
    ("TaskUpdate", Rule::Always),
    ("ToolSearch", Rule::Always),
    ("WebFetch", Rule::Always),
    ("WebSearch", Rule::Always),
    ("Write", Rule::Writes("file_path")),
    ("Edit", Rule::Writes("file_path")),
    ("MultiEdit", Rule::Writes("file_path")),
    ("NotebookEdit", Rule::Writes("notebook_path")),
    ("Read", Rule::Reads("file_path")),
    ("Glob", Rule::Reads("path")),
    ("Grep", Rule::Reads("path")),
    ("LS", Rule::Reads("path")),
    ("AskUserQuestion", Rule::Never("nobody is here to answer; decide by yourself")),
    ("ExitPlanMode", Rule::Never("there is no plan mode here; go on with the work")),
];

/// Names at the root of the workdir that make programs run here later.
const PLANTED: &[&str] = &[".claude", ".mcp.json", ".git/hooks", ".git/config"];

pub(super) fn answer(question: &Question, places: &Places) -> Answer {
    let tool = question.tool_name.as_str();
    let rule = TOOLS.iter().find(|(name, _)| *name == tool).map(|(_, rule)| *rule);
    let named = |key: &str| question.input.get(key).and_then(Value::as_str).map(Path::new);
    match rule {
        Some(Rule::Always) => Answer::Allow,
        Some(Rule::Never(why)) => Answer::Deny(why.to_owned()),
        Some(Rule::Writes(key)) => match named(key) {
            Some(path) => writes(path, places),
            None => Answer::Deny(format!("{tool} names no {key}")),
        },
        Some(Rule::Reads(_)) if places.boxed => Answer::Allow,
        Some(Rule::Reads(key)) => match named(key) {
            Some(path) => reads(path, places),
            // without a path it looks in the workdir
            None => Answer::Allow,
        },
        None => Answer::Deny(format!("{tool} cannot be used here")),
    }
}

/// Where a path leads; a relative one starts in the workdir.
fn leads(path: &Path, places: &Places) -> Option<PathBuf> {
    let path = places.workdir.join(path);
    if places.elsewhere { plain(&path) } else { resolve(&path) }
}

/// A path without `.` and `..`, by its words alone; `None` when it leads above the root.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !plain.pop() => return None,
            Component::ParentDir => {}
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// A directory as paths that lead into it begin.
fn real(dir: &Path, places: &Places) -> Option<PathBuf> {
    if places.elsewhere { plain(dir) } else { dir.canonicalize().ok() }
}

fn within(path: &Path, dir: &Path, places: &Places) -> bool {
    real(dir, places).is_some_and(|dir| path.starts_with(dir))
}

fn writes(path: &Path, places: &Places) -> Answer {
    let outside = || Answer::Deny(format!("{} is outside the working directory {}", path.display(), places.workdir.display()));
    let Some(led) = leads(path, places) else { return outside() };
    if within(&led, &places.scratch, places) {
        return Answer::Allow;
    }
    let Some(workdir) = real(&places.workdir, places) else { return outside() };
    let Ok(inside) = led.strip_prefix(&workdir) else { return outside() };
    if PLANTED.iter().any(|planted| starts_with_any_case(inside, planted)) {
        return Answer::Deny(format!("{} is configuration that runs programs on the user's machine", inside.display()));
    }
    Answer::Allow
}

/// Whether `path` is at or below `beginning`; some file systems do not tell cases apart.
fn starts_with_any_case(path: &Path, beginning: &str) -> bool {
    Path::new(&path.to_string_lossy().to_lowercase()).starts_with(beginning)
}

fn reads(path: &Path, places: &Places) -> Answer {
    let dirs = [&places.workdir, &places.scratch].into_iter().chain(&places.results);
    let allowed = leads(path, places).is_some_and(|led| dirs.into_iter().any(|dir| within(&led, dir, places)));
    if allowed {
        return Answer::Allow;
    }
    // its own file tools see this machine, its commands the box
    Answer::Deny(format!("{} is outside the working directory; read it with a Bash command", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct World {
        _dir: tempfile::TempDir,
        root: PathBuf,
        places: Places,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["w/.git/hooks", "s", "r", "home"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("home/.bashrc"), "").unwrap();
        symlink(root.join("home"), root.join("w/link")).unwrap();
        symlink(root.join("home/.bashrc"), root.join("w/rc")).unwrap();
        symlink(root.join("w/.git/hooks"), root.join("w/h")).unwrap();
        let places = Places {
            boxed: false,
            elsewhere: false,
            workdir: root.join("w"),
            scratch: root.join("s"),
            results: vec![root.join("r")],
        };
        World { _dir: dir, root, places }
    }

    fn ask(world: &World, tool: &str, key: &str, path: &str) -> bool {
        let mut input = Map::new();
        input.insert(key.to_owned(), path.replace("ROOT", &world.root.to_string_lossy()).into());
        let question = Question { tool_name: tool.into(), input, tool_use_id: String::new() };
        answer(&question, &world.places) == Answer::Allow
    }

    #[test]
    fn files_are_written_in_the_workdir_and_scratch_only() {
        let world = world();
        let writes = |path: &str| ask(&world, "Write", "file_path", path);
        assert!(writes("ROOT/w/a.txt"));
        assert!(writes("ROOT/w/new/dir/a.txt"));
        assert!(writes("a.txt"));
        assert!(writes("ROOT/s/x"));
        for path in [
            "ROOT/home/.bashrc",
            "ROOT/w/../home/.bashrc",
            "../home/x",
            "ROOT/w/link/x",
            "ROOT/w/rc",
            "/etc/passwd",
            "ROOT/wx/a",
            "ROOT/r/x",
        ] {
            assert!(!writes(path), "{path}");
        }
        assert!(!ask(&world, "NotebookEdit", "notebook_path", "ROOT/home/n.ipynb"));
        assert!(!ask(&world, "Write", "other", "ROOT/w/a"));
    }

    #[test]
    fn what_would_run_here_later_is_not_planted() {
        let world = world();
        for path in [
            ".git/hooks/pre-commit",
            "h/pre-commit",
            ".GIT/Hooks/x",
            ".git/config",
            ".claude/settings.json",
            ".mcp.json",
            "./.claude/x",
        ] {
            assert!(!ask(&world, "Edit", "file_path", path), "{path}");
        }
        for path in [".gitignore", ".git/info/exclude", "sub/.mcp.json", ".claude-notes"] {
            assert!(ask(&world, "Edit", "file_path", path), "{path}");
        }
    }

    #[test]
    fn files_are_read_where_the_box_has_the_same() {
        let world = world();
        for path in ["ROOT/w/x", "ROOT/s/out", "ROOT/r/long.txt"] {
            assert!(ask(&world, "Read", "file_path", path), "{path}");
        }
        for path in ["/etc/os-release", "ROOT/home/.bashrc", "ROOT/w/rc"] {
            assert!(!ask(&world, "Read", "file_path", path), "{path}");
        }
    }

    #[test]
    fn in_a_box_it_reads_what_is_there_and_writes_no_more() {
        let mut world = world();
        world.places.boxed = true;
        for path in ["ROOT/w/x", "/etc/os-release", "ROOT/w/rc"] {
            assert!(ask(&world, "Read", "file_path", path), "{path}");
        }
        for path in ["/etc/passwd", "ROOT/home/.bashrc", ".git/hooks/pre-commit", ".claude/settings.json"] {
            assert!(!ask(&world, "Write", "file_path", path), "{path}");
        }
        assert!(ask(&world, "Write", "file_path", "ROOT/w/a.txt"));
    }

    #[test]
    fn what_is_elsewhere_is_judged_by_its_words() {
        let mut world = world();
        world.places = Places {
            boxed: true,
            elsewhere: true,
            workdir: "/nowhere/here/w".into(),
            scratch: "/nowhere/here/s".into(),
            results: Vec::new(),
        };
        for path in ["a.txt", "/nowhere/here/w/x/../a", "/nowhere/here/s/x"] {
            assert!(ask(&world, "Write", "file_path", path), "{path}");
        }
        for path in ["../a.txt", "/nowhere/here/wx", "/../../x", "/etc/passwd", ".git/hooks/x", "x/../.claude/settings.json"] {
            assert!(!ask(&world, "Write", "file_path", path), "{path}");
        }
    }

    #[test]
    fn commands_are_allowed_and_strangers_are_not() {
        let world = world();
        assert!(ask(&world, "Bash", "command", "rm -rf /"));
        assert!(!ask(&world, "mcp__x__y", "command", "x"));
        assert!(!ask(&world, "CronCreate", "command", "x"));
    }
}
