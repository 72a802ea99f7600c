//! What no box may hold: a workdir is given to a box whole, to read and to write, so one that holds hmz's own files, the
//! daemon's socket or a place of the user's credentials is refused. Links are followed first.

use crate::paths::Paths;
use hmz_api::launch::CallerContext;
use std::path::{Path, PathBuf};

/// Where programs keep what they sign in with, below HOME.
const CREDENTIALS: [&str; 22] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".qwen",
    ".config/gh",
    ".config/gcloud",
    ".config/hub",
    ".local/share/keyrings",
    ".local/share/opencode",
    ".password-store",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials.toml",
];

/// What rules this machine. Below `/etc` and `/dev` there are directories people work in; they themselves are none.
const SYSTEM: [(&str, Below); 6] = [
    ("/etc", Below::Free),
    ("/dev", Below::Free),
    ("/proc", Below::Guarded),
    ("/sys", Below::Guarded),
    ("/run/docker.sock", Below::Free),
    ("/var/run/docker.sock", Below::Free),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Free,
    Guarded,
}

/// The guarded places of one HMZ_HOME.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl Guarded {
    /// With the daemon's HOME, for a caller who has none.
    pub(crate) fn new(paths: &Paths, home: Option<PathBuf>) -> Self {
        let own = vec![paths.home.clone(), paths.state.clone(), paths.runtime.clone(), paths.boxes.clone()];
        Self { own, home: home.filter(|home| home.is_absolute()) }
    }

    /// Why a directory may not be a workdir; `None` when it may. A directory that is not there is somebody else's refusal.
    pub(crate) fn refusal(&self, workdir: &str, caller: &CallerContext) -> Option<String> {
        let workdir = Path::new(workdir);
        let meant = [Some(workdir.to_path_buf()), workdir.canonicalize().ok()];
        let said = |name: &str| caller.env.get(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let mut places: Vec<(PathBuf, Below, &str)> =
            self.own.iter().map(|dir| (dir.clone(), Below::Guarded, "hmz keeps its own files there")).collect();
        // one without a home of his own has nothing in `/`
        for home in [said("HOME"), self.home.clone()].into_iter().flatten().filter(|home| home != Path::new("/")) {
            places.extend(CREDENTIALS.map(|name| (home.join(name), Below::Guarded, "credentials are kept there")));
        }
        places.extend(said("CLAUDE_CONFIG_DIR").map(|dir| (dir, Below::Guarded, "credentials are kept there")));
        places.extend(SYSTEM.map(|(place, below)| (place.into(), below, "it rules this machine")));
        for (place, below, why) in places {
            let real = place.canonicalize().unwrap_or_else(|_| real_parent(&place));
            for place in [&place, &real] {
                if let Some(dir) = meant.iter().flatten().find(|dir| overlaps(dir, place, below)) {
                    let how = if dir == place {
                        "is"
                    } else if place.starts_with(dir) {
                        "holds"
                    } else {
                        "is in"
                    };
                    let shown = workdir.display();
                    return Some(format!("the workdir {shown} {how} {}, and a box would have all of it: {why}", place.display()));
                }
            }
        }
        None
    }
}

/// A place that is not there yet, where it would be.
fn real_parent(place: &Path) -> PathBuf {
    match (place.parent().and_then(|dir| dir.canonicalize().ok()), place.file_name()) {
        (Some(dir), Some(name)) => dir.join(name),
        _ => place.to_path_buf(),
    }
}

fn overlaps(dir: &Path, place: &Path, below: Below) -> bool {
    place.starts_with(dir) || (below == Below::Guarded && dir.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_workdir_holds_nothing_that_is_guarded() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home/p/sub", "home/.config", "home/.hmz/state", "home/.ssh/keys", "run", "b", "claude/x", "var"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(root.join("home"), root.join("link")).unwrap();
        symlink(root.join("home/.ssh/keys"), root.join("home/p/keys")).unwrap();
        let paths = Paths {
            home: root.join("home/.hmz"),
            state: root.join("home/.hmz/state"),
            runtime: root.join("run"),
            boxes: root.join("b"),
        };
        let guarded = Guarded::new(&paths, Some(root.join("home")));
        let mut caller = CallerContext::default();
        caller.env.insert("CLAUDE_CONFIG_DIR".into(), root.join("claude").display().to_string());
        let refusal = |path: &str| guarded.refusal(&path.replace("ROOT", &root.display().to_string()), &caller);
        for (path, part) in [
            ("ROOT/home", "holds"),
            ("ROOT", "holds"),
            ("/", "holds"),
            ("ROOT/link", "holds"),
            ("ROOT/home/.config", ".config/gh, and a box"),
            ("ROOT/home/.ssh", "is ROOT/home/.ssh, and"),
            ("ROOT/home/p/keys", "is in ROOT/home/.ssh, and"),
            ("ROOT/home/p/../.ssh", "is ROOT/home/.ssh, and"),
            ("ROOT/home/.hmz/flows", "hmz keeps its own files"),
            ("ROOT/run", "hmz keeps its own files"),
            ("ROOT/claude/x", "credentials are kept there"),
            ("/etc", "it rules this machine"),
            ("/proc/1", "it rules this machine"),
            ("/var/run", "it rules this machine"),
        ] {
            let why = refusal(path).unwrap_or_else(|| panic!("{path} is let through"));
            assert!(why.contains(&part.replace("ROOT", &root.display().to_string())), "{path}: {why}");
        }
        for path in ["ROOT/home/p", "ROOT/home/p/sub", "ROOT/link/p", "ROOT/var", "/dev/shm/x", "/etc/x", "/no/such"] {
            assert_eq!(refusal(path), None, "{path}");
        }
        assert_eq!(Guarded::new(&paths, Some("/".into())).refusal("/srv/x", &CallerContext::default()), None);
    }
}
