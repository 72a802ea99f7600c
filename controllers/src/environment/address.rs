//! Where a box is reached, from what its environment's status says and from what this home alone knows. Pure.

use hmz_api::Resource;
use hmz_api::kinds::Environment;
use hmz_api::launch::BoxAddress;
use hmz_api::link::{Dial, Link, StreamLink};
use hmz_wire::SOCKET_NAME;
use std::collections::BTreeMap;
use std::fmt;

/// What this home knows of the ways to its boxes and no status says: the secret their keys derive from, and the variables of
/// programs that are needed on the way. Its `Debug` does not tell the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Carrier {
    secret: [u8; 32],
    env: BTreeMap<String, String>,
}

/// Variables that ssh needs.
const NEEDED: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"];

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carrier(…)")
    }
}

impl Carrier {
    /// With a home's secret, and of these variables those that are needed.
    pub fn new(secret: [u8; 32], env: &BTreeMap<String, String>) -> Self {
        let needed = NEEDED.iter().filter_map(|name| Some(((*name).to_owned(), env.get(*name)?.clone())));
        Self { secret, env: needed.collect() }
    }
}

/// Where the box of an environment is reached; `None` while it has none.
pub fn address_of(environment: &Resource<Environment>, carrier: &Carrier) -> Option<BoxAddress> {
    let status = &environment.status;
    Some(BoxAddress {
        environment: environment.metadata.name.clone(),
        used: status.used.as_ref()?.resource_name(),
        link: link(environment, carrier)?,
        workdir: status.workdir.clone()?,
        scratch: status.scratch.clone()?,
    })
}

fn link(environment: &Resource<Environment>, carrier: &Carrier) -> Option<Link> {
    let status = &environment.status;
    let Some(reach) = status.reach.clone() else {
        return Some(Link::Direct { socket: format!("{}/{SOCKET_NAME}", status.socket_dir.as_ref()?), pid: status.pid? });
    };
    let identity = format!("{}/{}", environment.metadata.uid.unwrap_or_default(), status.incarnation);
    let dial = Dial::Daemon { reach, container: status.container_id.clone()?, env: carrier.env.clone() };
    Some(Link::Stream(Box::new(StreamLink::new(dial, hmz_wire::box_key(&carrier.secret, &identity)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::kinds::EnvironmentSpec;
    use hmz_api::way::{Exec, Reach, Way};

    #[test]
    fn a_box_elsewhere_has_a_key_of_its_own_and_one_here_a_socket() {
        let spec: EnvironmentSpec = serde_json::from_str(r#"{"runtime": "docker:far", "workdir": "/w"}"#).unwrap();
        let mut env = Resource::<Environment>::new("e", spec);
        let variables = [("PATH", "/bin"), ("ANTHROPIC_API_KEY", "k")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let carrier = Carrier::new([7; 32], &variables.into());
        assert_eq!(address_of(&env, &carrier), None);
        let status = &mut env.status;
        status.used = Some(env.spec.runtime.clone());
        (status.workdir, status.scratch) = (Some("/w".into()), Some("/s".into()));
        (status.socket_dir, status.pid, status.container_id) = (Some("/r".into()), Some(7), Some("c".into()));
        let here = address_of(&env, &carrier).unwrap();
        assert_eq!(here.link, Link::Direct { socket: "/r/g.sock".into(), pid: 7 });
        let way = Way::Tcp { host: "h".into(), port: 1, tls: None };
        env.status.reach = Some(Reach { way, near: None, exec: Exec::of(vec!["/.hmz/hmz".into()]) });
        let key = |env: &Resource<Environment>, carrier: &Carrier| match address_of(env, carrier).unwrap().link {
            Link::Stream(link) => {
                let Dial::Daemon { container, env, .. } = link.dial else { panic!("{:?}", link.dial) };
                assert_eq!((container.as_str(), env.len(), env.contains_key("PATH")), ("c", 1, true));
                link.key
            }
            other => panic!("{other:?}"),
        };
        let first = key(&env, &carrier);
        assert_ne!(key(&env, &Carrier::new([8; 32], &[("PATH".into(), "/bin".into())].into())), first);
        env.status.incarnation = 2;
        assert_ne!(key(&env, &carrier), first);
        assert_eq!(format!("{carrier:?}"), "Carrier(…)");
    }
}
