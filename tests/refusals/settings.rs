//! Everything settings.yaml may not say of a runtime, each with the words for it.

use super::Place;

/// A runtime `n` of a backend, and what is said of it.
const ENTRIES: [(&str, &str, &str); 58] = [
    ("docker", "{workdir: x}", "the workdir 'x' must be absolute or under ~/"),
    ("docker", "{workdir: \"/a\\nb\"}", "the workdir '/a\nb' cannot contain newlines or quotes"),
    ("docker", "{endpoint: 'tcp://h:1', workdir: ~/x}", "~/x is on a remote docker host, so it must be an absolute path"),
    ("swarm", "{endpoint: 'tcp://h:1', workdir: ~/x}", "~/x is on a remote docker swarm, so it must be an absolute path"),
    (
        "docker",
        "{fallback: [box]}",
        "n: fallback 'box' must be <backend>:<name>, the backend one of ssh, docker, swarm, apple-container, slurm",
    ),
    ("docker", "{fallback: ['docker:n']}", "n: a runtime cannot fall back to itself"),
    ("docker", "{fallback: ['docker:a', 'docker:a']}", "n: fallback docker:a is named twice"),
    (
        "docker",
        "{harness: there}",
        "'there' is not where a harness runs: env, local or <ssh|docker|swarm|apple-container|slurm>:<runtime name>",
    ),
    ("docker", "{harness: 'docker:n'}", "n: its harness names itself; env is its own machine"),
    (
        "docker",
        "{endpoint: 'http://x'}",
        "'http://x' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or \
         context:<docker context>",
    ),
    ("docker", "{endpoint: 'tcp://h:70000'}", "'tcp://h:70000' is not a docker endpoint: "),
    ("docker", "{endpoint: 'ssh://-h'}", "'ssh://-h' is not a docker endpoint: "),
    ("docker", "{tls_dir: /x}", "n: TLS certificates require a tcp:// endpoint"),
    ("docker", "{container: 'a b'}", "n: invalid container 'a b'"),
    ("docker", "{exec_user: me}", "n: exec user 'me' is not UID[:GID]"),
    ("docker", "{exec_env: [A]}", "n: an exec variable is not NAME=VALUE"),
    ("docker", "{exec_env: ['1A=b']}", "n: exec variable '1A=…' is not NAME=VALUE"),
    ("docker", "{exec_wrapper: ['']}", "n: an exec wrapper word is empty or two lines"),
    ("docker", "{image: 'a b'}", "n: invalid image 'a b'"),
    ("docker", "{runtime: 'a b'}", "n: invalid OCI runtime 'a b'"),
    ("docker", "{run_args: [\"a\\nb\"]}", "n: an argument cannot contain newlines"),
    (
        "docker",
        "{name_prefix: -a}",
        "n: invalid name prefix '-a': letters, digits, dashes and underscores, starting and ending with a letter or a digit",
    ),
    (
        "docker",
        "{name_prefix: a23456789b123456789c123456789d123456789e123456789f12345}",
        "n: name prefix 'a23456789b123456789c123456789d123456789e123456789f12345' is longer than 54 characters: with a dash and 8 hex \
         digits after it, a swarm service's name would be longer than 63",
    ),
    ("docker", "{gpus: ['a b']}", "n: invalid GPU id 'a b'"),
    ("docker", "{gpus: ['0', '0']}", "n: duplicate GPU specified"),
    ("docker", "{cpus: -1}", "n: CPUs cannot be negative: -1"),
    ("docker", "{memory: -1}", "n: memory cannot be negative: -1"),
    ("docker", "{gpu_memory: -1}", "n: GPU memory cannot be negative: -1"),
    ("docker", "{max_containers: -1}", "n: containers cannot be negative: -1"),
    (
        "docker",
        "{container: c, image: x, runtime: r, run_args: [a], name_prefix: p, cpus: 2, max_containers: 1}",
        "n: a runtime working in the running container c starts none, so it cannot say an image or an OCI runtime or run arguments or a \
         name prefix or what it may hand out or a container limit",
    ),
    ("docker", "{container: c, memory: 8G}", "c starts none, so it cannot say what it may hand out\n"),
    ("docker", "{container: c, workdir: ~/x}", "the workdir '~/x' is a path in the container, so it must be absolute"),
    ("docker", "{cpus: lots}", "'lots' is not a number of CPUs"),
    ("docker", "{memory: lots}", "'lots' must be a number and unit, such as 64G or 512M"),
    ("docker", "{mxa_containers: 1}", "unknown field 'mxa_containers', did you mean 'max_containers'?"),
    ("docker", "", "'n' says nothing; for a runtime with every default write {}"),
    ("docker", "[a]", "expected a mapping of settings"),
    ("swarm", "{endpoint: 'ftp:x'}", "'ftp:x' is not a docker endpoint: "),
    ("swarm", "{tls_dir: /x}", "n: TLS certificates require a tcp:// endpoint"),
    ("swarm", "{gpu_resource: '1 x'}", "n: invalid generic resource '1 x'"),
    ("swarm", "{constraints: [a]}", "n: invalid constraint 'a': expected <attribute>==<value> or <attribute>!=<value>"),
    ("swarm", "{max_tasks: -1}", "n: tasks cannot be negative: -1"),
    ("swarm", "{nodes: {'a b': x}}", "n: invalid node host name 'a b'"),
    ("swarm", "{nodes: {a: 'x y'}}", "n: node a: 'x y' is neither a saved ssh host nor [user@]host[:port]"),
    ("swarm", "{gpus: ['0']}", "unknown field 'gpus', did you mean 'cpus'?"),
    ("swarm", "{container: x}", "unknown field 'container', expected one of endpoint, "),
    ("ssh", "{}", "n: an ssh host requires a hostname or an alias"),
    ("ssh", "{host: -x}", "n: invalid ssh host '-x'"),
    ("ssh", "{alias: -x}", "n: invalid ssh alias '-x'"),
    ("ssh", "{host: h, user: 'a b'}", "n: invalid ssh user 'a b'"),
    ("ssh", "{host: h, port: 70000}", "n: invalid port 70000"),
    ("ssh", "{host: h, proxy_jump: ' '}", "n: invalid jump host ' '"),
    ("ssh", "{host: h, identity_file: \"a\\nb\"}", "the identity file 'a\nb' cannot contain newlines or quotes"),
    ("ssh", "{host: h, options: {F: x}}", "n: invalid ssh option 'F'"),
    ("ssh", "{host: h, options: {Port: '1'}}", "n: Port must be set with port, not as an option"),
    ("ssh", "{host: h, options: {Compression: ''}}", "n: option Compression cannot be empty"),
    ("ssh", "{host: h, cpus: 2}", "unknown field 'cpus', expected one of host, "),
    ("dokcer", "{}", "'dokcer' is not a runtime backend: ssh, docker, swarm, apple-container, slurm"),
];

#[test]
fn what_the_settings_may_not_say_of_a_runtime() {
    let place = Place::new();
    let before = std::fs::read_to_string(place.home.hmz_home().join("settings.yaml")).unwrap();
    let refused = |what: &str, text: String, said: &str| {
        let checked = place.home.hmz(["settings", "validate", "-"]).stdin(text).run().expect_code(2);
        let err = checked.err();
        assert!(
            err.starts_with("hmz settings validate: error: -:") && err.contains(said),
            "{what} does not say\n{said}\n{checked}"
        );
        assert_eq!(checked.out(), "");
    };
    for (backend, entry, said) in ENTRIES {
        refused(&format!("{backend} {entry}"), format!("runtimes:\n  {backend}:\n    n: {entry}\n"), said);
    }
    let name = "invalid runtime name '-n': must start with a letter or digit and contain only letters, digits, dots, dashes, and \
                underscores";
    refused("a name", "runtimes:\n  docker:\n    '-n': {}\n".into(), name);
    // nor is it saved by the verb that saves one, which starts nothing either
    for (field, value, said) in [
        ("cpus", "-1", "here: CPUs cannot be negative: -1"),
        ("image", "a b", "here: invalid image 'a b'"),
        ("tls_dir", "/x", "here: TLS certificates require a tcp:// endpoint"),
    ] {
        let set = place.home.hmz(["settings", "set", &format!("runtimes.docker.here.{field}"), value]).run().expect_code(2);
        assert!(set.err().contains(said), "{set}");
    }
    assert_eq!(std::fs::read_to_string(place.home.hmz_home().join("settings.yaml")).unwrap(), before);
    assert_eq!(place.home.processes(), [0; 0]);
}

#[test]
fn a_saved_runtime_is_not_saved_over() {
    let place = Place::new();
    let added = place.home.hmz(["runtime", "add", "docker", "here"]).run().expect_code(2);
    assert!(added.err().contains("docker host 'here' already exists"), "{added}");
    std::fs::write(place.home.hmz_home().join("settings.yaml"), "runtimes: [docker\n").unwrap();
    let added = place.home.hmz(["runtime", "add", "docker", "new"]).run().expect_code(2);
    assert!(added.err().contains("settings.yaml"), "{added}");
    assert_eq!(std::fs::read_to_string(place.home.hmz_home().join("settings.yaml")).unwrap(), "runtimes: [docker\n");
}
