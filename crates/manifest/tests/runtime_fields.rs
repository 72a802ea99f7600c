//! Every field of a saved runtime: what is refused, in which words and where, and what is read.
#![cfg(test)]

mod held;

use hmz_manifest::Context;
use hmz_manifest::settings::read;

/// What only the reader says: what an argument means, whose the home is, and that a name is the runtime's own.
const NOT_IN_THE_SCHEMA: [&str; 8] = [
    "{exec_user: '4294967295'}",
    "{run_args: [--init, x]}",
    "{run_args: [-e, A=b, --cpus=9]}",
    "{run_args: [--publish, '80']}",
    "{endpoint: 'ssh:far', workdir: ~/w}",
    "{container: c, workdir: ~/w}",
    "{fallback: ['docker:gpubox']}",
    "{harness: 'docker:gpubox'}",
];

/// `LINE:COLUMN: message` of the entry `gpubox` whose fields are `fields`, or the entry as JSON.
fn said(backend: &str, fields: &str) -> String {
    let text = format!("runtimes: {{{backend}: {{gpubox: {fields}}}}}\n");
    let settings = read(&text, "s", &Context::new("/nowhere", Some("/home/me".into()))).unwrap();
    let entry = settings.runtimes.into_iter().next().unwrap().1;
    let is_seen = !NOT_IN_THE_SCHEMA.contains(&fields);
    assert_eq!(held::is_valid("settings.json", &text), entry.is_ok() || !is_seen, "schemas/settings.json of {text}");
    let manifest = format!("apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: '{backend}:gpubox'}}\nspec: {fields}\n");
    assert_eq!(held::is_valid("runtime.json", &manifest), entry.is_ok() || !is_seen, "schemas/runtime.json of {manifest}");
    match entry {
        Ok(spec) => serde_json::to_string(&spec).unwrap(),
        Err(report) => {
            // the columns of a field are counted from its entry's own first one
            let before = format!("runtimes: {{{backend}: {{gpubox: ").len();
            let column = report.column - before;
            format!("{column}: {}", report.message)
        }
    }
}

/// The refusals of docker's fields, each at its place.
#[test]
fn what_docker_fields_refuse() {
    let longest = "a".repeat(55);
    let long = format!("{{name_prefix: {longest}}}");
    let too_long = format!(
        "15: gpubox: name prefix '{longest}' is longer than 54 characters: with a dash and 8 hex digits after it, a swarm service's name would be longer than 63"
    );
    let prefix = |p: &str| {
        format!(
            "15: gpubox: invalid name prefix '{p}': letters, digits, dashes and underscores, starting and ending with a letter or a digit"
        )
    };
    let fallback = |f: &str| {
        format!(
            "13: gpubox: fallback '{f}' must be <backend>:<name>, the backend one of ssh, docker, swarm, apple-container, slurm"
        )
    };
    let cases: Vec<(&str, String)> = vec![
        (
            "{endpoint: tcp://}",
            "12: 'tcp://' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>".into(),
        ),
        ("{tls_dir: /c}", "11: gpubox: TLS certificates require a tcp:// endpoint".into()),
        ("{endpoint: 'ssh://h', tls_dir: /c}", "32: gpubox: TLS certificates require a tcp:// endpoint".into()),
        ("{container: -x}", "13: gpubox: invalid container '-x'".into()),
        ("{exec_user: me}", "13: gpubox: exec user 'me' is not UID[:GID]".into()),
        ("{exec_user: '1:'}", "13: gpubox: exec user '1:' is not UID[:GID]".into()),
        ("{exec_user: '4294967295'}", "13: gpubox: exec user '4294967295' is not UID[:GID]".into()),
        ("{exec_env: [A=1, 1A=2]}", "18: gpubox: exec variable '1A=…' is not NAME=VALUE".into()),
        ("{exec_env: 84736251}", "12: expected a list".into()),
        ("{exec_env: [{A: 84736251}]}", "13: expected a text".into()),
        ("{exec_env: [A]}", "13: gpubox: an exec variable is not NAME=VALUE".into()),
        (
            "{exec_env: [NVIDIA_VISIBLE_DEVICES=all]}",
            "13: gpubox: exec variable 'NVIDIA_VISIBLE_DEVICES=…' contradicts the GPUs a box is granted".into(),
        ),
        ("{exec_wrapper: [/w, '']}", "21: gpubox: an exec wrapper word is empty or two lines".into()),
        ("{image: a b}", "9: gpubox: invalid image 'a b'".into()),
        ("{runtime: a/b}", "11: gpubox: invalid OCI runtime 'a/b'".into()),
        ("{run_args: [\"a\\nb\"]}", "13: gpubox: an argument cannot contain newlines".into()),
        (
            "{run_args: [--init, x]}",
            "13: gpubox: run_args: --init is refused: a box's first process is hmz's own".into(),
        ),
        (
            "{run_args: [-e, A=b, --cpus=9]}",
            "22: gpubox: run_args: --cpus is refused: it contradicts the share the box is granted; say cpus, memory and gpus of the role or the runtime".into(),
        ),
        (
            "{run_args: [--publish, '80']}",
            "13: gpubox: run_args: --publish is not among the arguments a box takes; they are listed in docs/run-args.md".into(),
        ),
        ("{name_prefix: -a}", prefix("-a")),
        ("{name_prefix: a.b}", prefix("a.b")),
        ("{name_prefix: a-}", prefix("a-")),
        (&long, too_long),
        ("{cpus: -1}", "8: gpubox: CPUs cannot be negative: -1".into()),
        ("{memory: -1}", "10: gpubox: memory cannot be negative: -1".into()),
        ("{gpu_memory: -2}", "14: gpubox: GPU memory cannot be negative: -2".into()),
        ("{max_containers: -1}", "18: gpubox: containers cannot be negative: -1".into()),
        ("{gpus: [0, a/b]}", "12: gpubox: invalid GPU id 'a/b'".into()),
        ("{gpus: [0, 1, 0]}", "15: gpubox: duplicate GPU specified".into()),
        ("{workdir: w}", "11: the workdir 'w' must be absolute or under ~/".into()),
        ("{workdir: '/a\"b'}", "11: the workdir '/a\"b' cannot contain newlines or quotes".into()),
        ("{endpoint: 'ssh:far', workdir: ~/w}", "32: ~/w is on a remote docker host, so it must be an absolute path".into()),
        ("{container: c, workdir: ~/w}", "25: the workdir '~/w' is a path in the container, so it must be absolute".into()),
        ("{fallback: [spare]}", fallback("spare")),
        ("{fallback: ['local:x']}", fallback("local:x")),
        ("{fallback: [docker]}", fallback("docker")),
        ("{fallback: ['docker:gpubox']}", "13: gpubox: a runtime cannot fall back to itself".into()),
        ("{fallback: ['ssh:a', 'ssh:a']}", "22: gpubox: fallback ssh:a is named twice".into()),
        ("{harness: 'docker:gpubox'}", "11: gpubox: its harness names itself; env is its own machine".into()),
        (
            "{harness: there}",
            "11: 'there' is not where a harness runs: env, local or <ssh|docker|swarm|apple-container|slurm>:<runtime name>".into(),
        ),
        ("{nodes: {a: b}}", "2: unknown field 'nodes'".into()),
        ("{host: h}", "2: unknown field 'host'".into()),
        ("{cpus: many}", "8: 'many' is not a number of CPUs, such as 2 or 0.5".into()),
    ];
    for (fields, refusal) in cases {
        assert_eq!(said("docker", fields), refusal, "{fields}");
    }
}

/// All that contradicts a running container is one refusal, at the first of it.
#[test]
fn beside_a_running_container_all_of_it_is_refused_at_once() {
    let says =
        |words: &str| format!("gpubox: a runtime working in the running container c starts none, so it cannot say {words}");
    let all = "{container: c, image: i, runtime: r, run_args: [a], name_prefix: n, cpus: 1, memory: 1G, gpus: [0], gpu_memory: 1G, max_containers: 2}";
    let words = "an image or an OCI runtime or run arguments or a name prefix or what it may hand out or a container limit";
    assert_eq!(said("docker", all), format!("16: {}", says(words)));
    for (field, words) in [
        ("image: i", "an image"),
        ("runtime: r", "an OCI runtime"),
        ("run_args: [a]", "run arguments"),
        ("name_prefix: n", "a name prefix"),
        ("cpus: 1", "what it may hand out"),
        ("memory: 1", "what it may hand out"),
        ("gpus: [0]", "what it may hand out"),
        ("gpu_memory: 1", "what it may hand out"),
        ("max_containers: 1", "a container limit"),
        ("default_request: {cpus: 1}", "a default request"),
        ("lease: 1m", "a lease"),
    ] {
        assert_eq!(said("docker", &format!("{{{field}, container: c}}")), format!("2: {}", says(words)), "{field}");
    }
    let fine = "{container: c, endpoint: 'tcp://h:1', tls_dir: /c, exec_user: 7, exec_env: [A=b], exec_wrapper: [w], workdir: /w, harness: local, fallback: ['docker:b']}";
    assert!(said("docker", fine).starts_with('{'), "{}", said("docker", fine));
}

#[test]
fn what_swarm_and_ssh_fields_refuse() {
    for (backend, fields, refusal) in [
        ("swarm", "{gpu_resource: 1x}", "16: gpubox: invalid generic resource '1x'"),
        (
            "swarm",
            "{constraints: [a=b]}",
            "16: gpubox: invalid constraint 'a=b': expected <attribute>==<value> or <attribute>!=<value>",
        ),
        ("swarm", "{max_tasks: -1}", "13: gpubox: tasks cannot be negative: -1"),
        ("swarm", "{nodes: {-a: b}}", "10: gpubox: invalid node host name '-a'"),
        ("swarm", "{nodes: {a: b@}}", "13: gpubox: node a: 'b@' is neither a saved ssh host nor [user@]host[:port]"),
        ("swarm", "{gpus: [0]}", "2: unknown field 'gpus'"),
        ("swarm", "{container: c}", "2: unknown field 'container'"),
        ("ssh", "{}", "1: gpubox: an ssh host requires a hostname or an alias"),
        ("ssh", "{host: a b}", "8: gpubox: invalid ssh host 'a b'"),
        ("ssh", "{alias: -a}", "9: gpubox: invalid ssh alias '-a'"),
        ("ssh", "{host: h, user: 'a;b'}", "17: gpubox: invalid ssh user 'a;b'"),
        ("ssh", "{host: h, port: 70000}", "17: gpubox: invalid port 70000"),
        ("ssh", "{host: h, proxy_jump: -J}", "23: gpubox: invalid jump host '-J'"),
        ("ssh", "{host: h, identity_file: 'a\"b'}", "26: the identity file 'a\"b' cannot contain newlines or quotes"),
        ("ssh", "{host: h, options: {F: x}}", "24: gpubox: invalid ssh option 'F'"),
        ("ssh", "{host: h, options: {a-b: x}}", "26: gpubox: invalid ssh option 'a-b'"),
        ("ssh", "{host: h, options: {User: x}}", "27: gpubox: User must be set with user, not as an option"),
        ("ssh", "{host: h, options: {Compression: ''}}", "34: gpubox: option Compression cannot be empty"),
        ("ssh", "{host: h, cpus: 1}", "11: unknown field 'cpus'"),
    ] {
        assert_eq!(said(backend, fields), refusal, "{backend} {fields}");
    }
}

#[test]
fn every_field_is_read() {
    let docker = "{endpoint: 'tcp://h:2376', tls_dir: ~/certs, exec_user: 1000:10, exec_env: [A=b c], exec_wrapper: [nice, 5], image: i, runtime: runsc, run_args: [--shm-size=1g], name_prefix: team-a, cpus: 1.5, memory: 8G, gpus: [0, GPU-1], gpu_memory: 80G, max_containers: 2, default_request: {cpus: 1, memory: 1G, gpus: 0}, lease: 2m, workdir: /w/../x, fallback: ['docker:b', 'ssh:c'], harness: local}";
    insta::assert_snapshot!("docker", said("docker", docker));
    let swarm = "{endpoint: 'ssh:mgr', gpu_resource: NVIDIA-GPU, constraints: ['node.labels.shared==true', 'node.hostname!=a'], max_tasks: 3, nodes: {w1: saved, w2: me@10.0.0.2:22}}";
    insta::assert_snapshot!("swarm", said("swarm", swarm));
    let ssh = "{host: 10.0.0.1, alias: far, user: me, port: 2222, identity_file: ~/.ssh/key, proxy_jump: 'a,b@c:2', options: {Compression: yes}, config: ~/cfg, workdir: ~/w, made: imported}";
    insta::assert_snapshot!("ssh", said("ssh", ssh));
}
