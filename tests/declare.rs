//! Manifests in earnest: what an apply would do is told before, and what is declared no more goes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "declare/find.rs"]
mod find;
#[path = "declare/gitops.rs"]
mod gitops;
#[path = "declare/merge.rs"]
mod merge;
#[path = "declare/pipes.rs"]
mod pipes;
#[path = "declare/plan.rs"]
mod plan;
#[path = "declare/runs.rs"]
mod runs;
#[path = "declare/sets.rs"]
mod sets;
mod support;
#[path = "declare/sync.rs"]
mod sync;
#[path = "declare/told.rs"]
mod told;
#[path = "declare/waits.rs"]
mod waits;

use support::command::Finished;
use support::home::TestHome;
use support::project::Project;

/// A home and a directory for manifests.
pub struct Place {
    /// The home.
    pub home: TestHome,
    /// The directory.
    pub project: Project,
}

impl Place {
    /// New ones, with nothing in them.
    pub fn make() -> Self {
        let home = TestHome::new();
        let project = home.project("p");
        Self { home, project }
    }

    /// `hmz WORD…` where the manifests are.
    pub fn hmz(&self, line: &str) -> Finished {
        self.home.hmz(line.split_whitespace()).cwd(self.project.dir()).run()
    }

    /// A manifest of an environment.
    pub fn environment(&self, file: &str, name: &str, more: &str) {
        self.project.write(
            file,
            &format!(
                "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:here', workdir: ., \
                 image: 'busybox:latest'{more}}}\n"
            ),
        );
    }

    /// The environments that there are.
    pub fn environments(&self) -> String {
        self.hmz("get envs -o name").ok().out().replace('\n', " ").trim().to_owned()
    }
}
