//! What the boxes of environments use at this moment, each asked of its daemon. Asked by people only: no controller looks.

use crate::environment::plan::target_of;
use crate::runtime;
use crate::world::World;
use futures::stream::{self, StreamExt};
use hmz_api::rest::{EnvironmentUsage, Usage};
use hmz_api::{Environment, Resource};
use std::time::Duration;

/// How many boxes are asked of together.
const TOGETHER: usize = 16;
/// How long one is waited for: a daemon that does not answer keeps nobody from reading of the others.
const LIMIT: Duration = Duration::from_secs(10);

/// One look at each of the environments, in their order. What cannot be had is absent, and said why.
pub async fn usage(world: &World, environments: Vec<Resource<Environment>>) -> Vec<EnvironmentUsage> {
    stream::iter(environments).map(|environment| of(world, environment)).buffered(TOGETHER).collect().await
}

async fn of(world: &World, environment: Resource<Environment>) -> EnvironmentUsage {
    let asked = tokio::time::timeout(LIMIT, ask(world, &environment)).await;
    let (usage, why) = match asked {
        Ok(Ok(usage)) => (Some(usage), String::new()),
        Ok(Err(why)) => (None, why),
        Err(_) => (None, format!("no answer in {} s", LIMIT.as_secs())),
    };
    let status = environment.status;
    EnvironmentUsage {
        runtime: status.used.unwrap_or(environment.spec.runtime),
        environment: environment.metadata.name,
        container: status.container_id,
        container_name: status.container_name,
        node: status.node,
        share: status.share,
        usage,
        why,
    }
}

async fn ask(world: &World, environment: &Resource<Environment>) -> Result<Usage, String> {
    let status = &environment.status;
    let Some(id) = status.container_id.as_deref() else { return Err("it has no box now".to_owned()) };
    let used = status.used.as_ref().unwrap_or(&environment.spec.runtime);
    let runtime = runtime::find(&world.store, used).await.map_err(|e| e.to_string())?.map(|r| r.spec);
    let target = target_of(environment, runtime.as_ref());
    let driver = world.drivers.get(&used.backend).ok_or_else(|| format!("{} is not driven by this version", used.backend))?;
    driver.usage(&target, id, status.node.as_deref()).await.map_err(|e| e.to_string())
}
