//! The boxes of a run: a connection to each, held for the whole run, which is what keeps a box alive.

use hmz_api::Error;
use hmz_api::journal::Outcome;
use hmz_api::launch::{BoxAddress, RunLaunch};
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

/// The boxes of each role.
#[derive(Debug)]
pub(crate) struct Boxes {
    places: BTreeMap<String, Place>,
    /// The second boxes, of the roles that have one.
    seconds: BTreeMap<String, Place>,
}

impl Boxes {
    /// Connects to all; what is to be said of one that is lost later is sent to `lost`, of those that end with
    /// [`Boxes::release`] too.
    pub(crate) async fn connect(launch: &RunLaunch, lost: &mpsc::UnboundedSender<String>) -> Result<Self, Error> {
        let places = Self::connect_all(&launch.boxes, lost, gone).await?;
        Ok(Self { places, seconds: Self::connect_all(&launch.seconds, lost, second_gone).await? })
    }

    async fn connect_all(
        addresses: &BTreeMap<String, BoxAddress>,
        lost: &mpsc::UnboundedSender<String>,
        gone: fn(&str, Option<&BoxAddress>) -> String,
    ) -> Result<BTreeMap<String, Place>, Error> {
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
            let (watched, lost, gone) = (client.clone(), lost.clone(), gone(role, Some(&address)));
            std::thread::Builder::new()
                .name("lost".into())
                .spawn(move || {
                    watched.wait_lost();
                    // nobody may care any more
                    let _ = lost.send(gone);
                })
                .map_err(|e| Error::failed(format!("a thread cannot be started: {e}")))?;
            places.insert(role.clone(), Place { address, client });
        }
        Ok(places)
    }

    pub(crate) fn of(&self, role: &str) -> Option<&Place> {
        self.places.get(role)
    }

    /// The second box of a role.
    pub(crate) fn second_of(&self, role: &str) -> Option<&Place> {
        self.seconds.get(role)
    }

    /// Whether a role has a second box that does not answer any more.
    pub(crate) async fn second_is_gone(&self, role: &str) -> bool {
        match self.seconds.get(role) {
            Some(second) => connect(&second.address, false).await.is_err(),
            None => false,
        }
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
        let Some(place) = self.places.get(role).filter(|place| place.client.is_copied()) else { return Ok(()) };
        if is_same(place).await? {
            return Ok(());
        }
        let (dir, used) = (&place.address.workdir, &place.address.used);
        Err(Error::refused(format!(
            "its harness runs here, and {dir} on {used} is not the directory of that path here, which it has to be, since files \
             are not copied yet"
        )))
    }

    /// Whether a CLI that runs in the second box of a role can work in the directory of its box: both have to have the one that
    /// is here, which is proved of each.
    ///
    /// # Errors
    /// It is another, or that cannot be told, in one sentence.
    pub(crate) async fn have_one_workdir(&self, role: &str) -> Result<(), Error> {
        let (Some(place), Some(second)) = (self.places.get(role), self.seconds.get(role)) else { return Ok(()) };
        if is_same(place).await? && is_same(second).await? {
            return Ok(());
        }
        let (dir, used, on) = (&place.address.workdir, &place.address.used, &second.address.used);
        Err(Error::refused(format!(
            "its harness runs on {on}, and {dir} there is not the directory of that path on {used}, which it has to be, since \
             files are not copied yet"
        )))
    }

    /// Ends the connections.
    pub(crate) fn release(&self) {
        for place in self.places.values().chain(self.seconds.values()) {
            place.client.shutdown();
        }
    }
}

/// Whether the directory of a box is the one of that path here.
async fn is_same(place: &Place) -> Result<bool, Error> {
    let place = place.clone();
    let proof = move || hmz_anchor::shared::is_same(&place.client, &place.address.link, Path::new(&place.address.workdir));
    match tokio::task::spawn_blocking(proof).await {
        Ok(proved) => proved.map_err(Error::from),
        Err(e) => Err(Error::failed(format!("a proof was given up: {e}"))),
    }
}

/// What is said of a second box that went away.
pub(crate) fn second_gone(role: &str, address: Option<&BoxAddress>) -> String {
    let used = address.map(|address| address.used.as_str()).unwrap_or_default();
    format!("the second box of '{role}' on {used} is gone: its guest ended the connection")
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
