//! `-a`, `-e`, `-p` and names: round trips, and the refusals word for word.
#![cfg(test)]

use hmz_api::grammar::{AgentArg, AgentSpec, EnvArg, EnvSpec, ParamArg};
use hmz_api::{Backend, RuntimeRef, name};
use proptest::prelude::*;

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_-]{0,8}"
}

proptest! {
    #[test]
    fn an_agent_survives(
        cli in word(),
        account in proptest::option::of(word()),
        model in "[a-z0-9]([a-z0-9/:._-]{0,12}[a-z0-9:/])?",
        effort in proptest::option::of("[a-z]{1,5}([ _-][a-z]{1,5})?"),
    ) {
        let spec = AgentSpec { cli, account, model, effort: effort.filter(|e| e != "auto") };
        prop_assert_eq!(spec.to_string().parse::<AgentSpec>().unwrap(), spec.clone(), "{}", spec);
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<AgentSpec>(&json).unwrap(), spec.clone());
        let args = AgentArg::parse_all(&format!("coder={spec}, {spec}")).unwrap();
        // the second item has no key before it, so it belongs to the first one's model
        prop_assert_eq!(args.len(), 1);
        let args = AgentArg::parse_all(&format!("coder={spec}, tester={spec}")).unwrap();
        prop_assert_eq!(args.len(), 2);
        prop_assert_eq!(&args[1].spec, &spec);
    }

    #[test]
    fn a_place_survives(
        backend in 1..Backend::ALL.len(),
        provider in "[A-Za-z0-9][A-Za-z0-9._-]{0,8}",
        workdir in proptest::option::of("(/[a-z0-9._ -]{0,6}[a-z]){1,4}|~(/[a-z]{1,5}){0,2}"),
    ) {
        let spec = EnvSpec { runtime: RuntimeRef::named(Backend::ALL[backend], provider), workdir };
        prop_assert_eq!(spec.to_string().parse::<EnvSpec>().unwrap(), spec.clone(), "{}", spec);
        let args = EnvArg::parse_all(&format!("a={spec}, b={spec}")).unwrap();
        prop_assert_eq!(args.iter().map(|a| a.role.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        prop_assert_eq!(&args[1].spec, &spec);
    }

    #[test]
    fn a_runtime_is_one_in_three_spellings(backend in 0..Backend::ALL.len(), name in "[A-Za-z0-9][A-Za-z0-9._-]{0,8}") {
        let backend = Backend::ALL[backend];
        for sign in [":", "@", "/"] {
            prop_assert_eq!(format!("{backend}{sign}{name}").parse::<RuntimeRef>().unwrap(), RuntimeRef::named(backend, &name));
        }
        let runtime = RuntimeRef::named(backend, &name);
        prop_assert_eq!(runtime.resource_name().parse::<RuntimeRef>().unwrap(), runtime.clone());
        prop_assert_eq!(runtime.at().parse::<RuntimeRef>().unwrap(), runtime);
    }

    #[test]
    fn no_text_panics(text in "[a-z=@/:,.\\[\\]~ é]{0,24}") {
        let _ = (AgentArg::parse_all(&text), EnvArg::parse_all(&text), ParamArg::parse_all(&text));
        let _ = (text.parse::<AgentSpec>(), text.parse::<EnvSpec>(), text.parse::<RuntimeRef>());
    }
}

#[test]
fn agents_as_they_are_typed() {
    let args = AgentArg::parse_flags([
        "coder=claude/claude-haiku-4-5-20251001:low",
        "claude@work/opus",
        "r=opencode/x/qwen3:latest:auto",
    ])
    .unwrap();
    let shown: Vec<String> = args.iter().map(|a| format!("{:?} {:?} {:?}", a.role, a.spec.model, a.spec.effort)).collect();
    assert_eq!(
        shown,
        [r#"Some("coder") "claude-haiku-4-5-20251001" Some("low")"#, r#"None "opus" None"#, r#"Some("r") "x/qwen3:latest" None"#]
    );
    let one = "claude/x:very high".parse::<AgentSpec>().unwrap();
    assert_eq!(one.effort.as_deref(), Some("very high"));
    assert_eq!("opencode/qwen3:latest:auto".parse::<AgentSpec>().unwrap().to_string(), "opencode/qwen3:latest:auto");
}

#[test]
fn refusals_of_agents() {
    let said = |values: &[&str]| AgentArg::parse_flags(values).unwrap_err().message;
    let shape = "expected [<role>=]<harness>[@<provider>]/<model>[:<effort>]";
    for item in ["claude", "coder=claude", "coder=/x", "coder=claude/", "coder=a b/x", "coder=claude/:low", "coder=a=b/x"] {
        assert_eq!(said(&[item]), format!("-a '{item}': {shape}"));
    }
    assert_eq!(
        said(&["c=claude@/m:low"]),
        "-a 'c=claude@/m:low': expected an account after @, as in claude@deepseek/MODEL:EFFORT"
    );
    assert_eq!(said(&["x-y=claude/m"]), "-a 'x-y=claude/m': the role 'x-y' is not an identifier");
    assert_eq!(said(&["a=claude/m", "a=claude/n"]), "-a: the role 'a' is given twice");
    assert_eq!(said(&[",a=claude/m"]), "-a ',a=claude/m': an item is empty");
    assert_eq!(
        "claude".parse::<AgentSpec>().unwrap_err().message,
        "'claude': expected <harness>[@<provider>]/<model>[:<effort>]"
    );
}

#[test]
fn places_as_they_are_typed() {
    let shown = |text: &str| {
        let args = EnvArg::parse_all(text).unwrap();
        args.iter().map(|a| format!("{} {} {:?}", a.role, a.spec.runtime, a.spec.workdir)).collect::<Vec<_>>()
    };
    assert_eq!(shown("box=docker@here/home/me/p"), [r#"box docker:here Some("/home/me/p")"#]);
    assert_eq!(shown(" box = docker @ here /p"), [r#"box docker:here Some("/p")"#]);
    assert_eq!(shown("box=docker/~/p,b=local/x"), [r#"box docker Some("~/p")"#, r#"b local Some("/x")"#]);
    assert_eq!(shown("box=docker@here"), ["box docker:here None"]);
    assert_eq!(shown("box=docker/~"), [r#"box docker Some("~")"#]);
    assert_eq!(shown("box=docker/a, b/c"), [r#"box docker Some("/a, b/c")"#]);
}

#[test]
fn refusals_of_places() {
    let said = |values: &[&str]| EnvArg::parse_flags(values).unwrap_err().message;
    for (item, why) in [
        ("box", "expected <role>=<backend>[@<provider>][/<workdir>]"),
        ("box=", "expected <role>=<backend>[@<provider>][/<workdir>]"),
        ("box=[x]/y", "expected <role>=<backend>[@<provider>][/<workdir>]"),
        (
            "box=docker",
            "expected <role>=<backend>[@<provider>][/<workdir>]; /<workdir> may be left off only for a runtime saved with one",
        ),
        ("x-y=docker/p", "the role 'x-y' is not an identifier"),
        ("box=podman/x", "'podman' is not a backend; one of local, ssh, docker, swarm, apple-container, slurm"),
        ("box=local@here/x", "local takes no provider; write box=local/<workdir>"),
        ("box=docker@/x", "an @ is written only before a provider; write box=docker/x"),
        (
            "box=docker@[h]/x",
            "only ssh takes a host nobody saved; docker@<name> names a docker runtime saved on the runtimes page of /settings",
        ),
        ("box=ssh/x", "ssh needs a host: ssh@<saved host>/x, or ssh@[user@host:port]/x for a host not saved"),
        ("box=ssh@[-h]/x", "'-h' is not an ssh host, as [user@]host[:port]"),
        ("box=ssh@[h:123456]/x", "'h:123456' is not an ssh host, as [user@]host[:port]"),
        ("box=ssh@[h/x", "'h' is not an ssh host, as [user@]host[:port]"),
        (
            "box=docker@a b/x",
            "invalid runtime name 'a b': must start with a letter or digit and contain only letters, digits, dots, dashes, and underscores",
        ),
    ] {
        assert_eq!(said(&[item]), format!("-e '{item}': {why}"));
    }
    assert_eq!(said(&["box=docker/x", "box=docker/y"]), "-e: the role 'box' is given twice");
    assert_eq!(said(&[""]), "-e '': an item is empty");
    assert!(said(&["box=ssh@[me@gpu:22]/x"]).contains("not supported yet"));
}

#[test]
fn params_as_they_are_typed() {
    let args = ParamArg::parse_all("budget.duration=10m, tries=3, word=abc, list=[1,2], text=a,b").unwrap();
    let params = ParamArg::collect(&args).unwrap();
    assert_eq!(params.budget.duration.unwrap().to_string(), "10m");
    assert_eq!(serde_json::Value::Object(params.own).to_string(), r#"{"tries":3,"word":"abc","list":[1,2],"text":"a,b"}"#);
}

#[test]
fn refusals_of_params() {
    let said = |value: &str| ParamArg::parse_all(value).and_then(|a| ParamArg::collect(&a)).unwrap_err().message;
    for (value, why) in [
        ("x", "-p 'x': expected <key>=<value>"),
        ("=1", "-p '=1': expected <key>=<value>"),
        ("x=1,x=2", "-p: 'x' is given twice"),
        ("budget.duration=abc", "-p budget.duration=abc: 'abc' is not a duration: use seconds, 1h30m, or ISO 8601 like PT1H30M"),
        ("budget.cost=5", "-p budget.cost=5: not a limit; one of budget.duration"),
        ("budget=10m", "-p: a budget is given a limit at a time, as budget.duration=10m"),
    ] {
        assert_eq!(said(value), why);
    }
}

#[test]
fn names_of_resources() {
    let long = "a".repeat(63);
    for good in ["a", "fix-add", "v1.2", "0", long.as_str()] {
        name::check(good).unwrap();
    }
    let longer = "a".repeat(64);
    for bad in ["", "A", "a_b", "-a", "a-", ".a", "a.", "a b", "ä", "a/b", longer.as_str()] {
        let said = name::check(bad).unwrap_err();
        assert!(said.message.starts_with(&format!("'{bad}' is not a name: at most 63 lower-case letters")), "{said}");
        assert_eq!(said.exit_code(), 2);
    }
    assert!(["a", "_x", "box2"].into_iter().all(name::is_identifier));
    assert!(!["", "2a", "a-b", "ä", "a b"].into_iter().any(name::is_identifier));
}
