//! The boxes of a run: a connection to each, held for the whole run, which is what keeps a box alive.

use hmz_api::Error;
use hmz_api::journal::Outcome;
use hmz_api::launch::BoxAddress;
use hmz_wire::{Client, ClientError, located};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::sync::mpsc;

/// A box and the connection that keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: BoxAddress,
    pub(crate) client: Client,
}

/// Role → box.
#[derive(Debug)]
pub(crate) struct Boxes {
    places: BTreeMap<String, Place>,
}

impl Boxes {
    /// Connects to all; a role whose box is lost later is sent to `lost`, those that end with [`Boxes::release`] too.
    pub(crate) async fn connect(
        addresses: &BTreeMap<String, BoxAddress>,
        lost: &mpsc::UnboundedSender<String>,
    ) -> Result<Self, Error> {
        let mut places = BTreeMap::new();
        for (role, address) in addresses {
            // who works in it later need not wait for it again
            let (address, awaited) = (address.clone(), address.clone());
            let address = match tokio::task::spawn_blocking(move || located(&awaited)).await {
                Ok(Ok(located)) => located,
                Ok(Err(e)) => return Err(unreached(&address, e)),
                Err(e) => return Err(Error::failed(format!("a connection was given up: {e}"))),
            };
            let client = connect(&address, true).await?;
            let (watched, lost, name) = (client.clone(), lost.clone(), role.clone());
            std::thread::Builder::new()
                .name("lost".into())
                .spawn(move || {
                    watched.wait_lost();
                    // nobody may care any more
                    let _ = lost.send(name);
                })
                .map_err(|e| Error::failed(format!("a thread cannot be started: {e}")))?;
            places.insert(role.clone(), Place { address, client });
        }
        Ok(Self { places })
    }

    pub(crate) fn of(&self, role: &str) -> Option<&Place> {
        self.places.get(role)
    }

    /// Whether a role's box answers now. What was started in it may have ended because it went away, before its end was
    /// heard of on the connection that is held.
    pub(crate) async fn answers(&self, role: &str) -> bool {
        match self.places.get(role) {
            Some(place) => connect(&place.address, false).await.is_ok(),
            None => false,
        }
    }

    /// Whether a CLI that runs here can work in the directory of a role's box: on this kernel they are one, and elsewhere that
    /// is proved.
    ///
    /// # Errors
    /// It is another, or that cannot be told, in one sentence.
    pub(crate) async fn has_workdir(&self, role: &str) -> Result<(), Error> {
        let Some(place) = self.places.get(role).filter(|place| place.client.is_copied()).cloned() else { return Ok(()) };
        let (dir, used) = (place.address.workdir.clone(), place.address.used.clone());
        let proof = move || hmz_anchor::shared::is_same(&place.client, &place.address.link, Path::new(&place.address.workdir));
        match tokio::task::spawn_blocking(proof).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Error::refused(format!(
                "its harness runs here, and {dir} on {used} is not the directory of that path here, which it has to be, since \
                 files are not copied yet"
            ))),
            Ok(Err(e)) => Err(e.into()),
            Err(e) => Err(Error::failed(format!("a proof was given up: {e}"))),
        }
    }

    /// Ends the connections.
    pub(crate) fn release(&self) {
        for place in self.places.values() {
            place.client.shutdown();
        }
    }
}

/// What is said of a box that went away.
pub(crate) fn gone(role: &str, address: Option<&BoxAddress>) -> String {
    let used = address.map(|address| address.used.as_str()).unwrap_or_default();
    format!("the box of '{role}' on {used} is gone: its guest ended the connection")
}

/// A connection to a box.
pub(crate) async fn connect(address: &BoxAddress, owner: bool) -> Result<Client, Error> {
    let link = address.link.clone();
    let connecting = tokio::task::spawn_blocking(move || Client::open(&link, owner, None));
    match connecting.await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(e)) => Err(unreached(address, e)),
        Err(e) => Err(Error::failed(format!("a connection was given up: {e}"))),
    }
}

/// Why a box cannot be worked in, and whether that refuses the run.
fn unreached(address: &BoxAddress, error: ClientError) -> Error {
    match error {
        ClientError::NotStarted { outcome: Outcome::Refused, message } => Error::refused(message),
        ClientError::NotStarted { message, .. } => Error::failed(message),
        e => Error::failed(format!("'{}' on {} cannot be worked in: {e}", address.environment, address.used)),
    }
}
