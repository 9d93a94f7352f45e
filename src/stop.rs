//! Being asked to stop: a flag that tasks can wait for and threads can look at.

use tokio::sync::watch;

/// The side that asks.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// The side that is asked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// A flag that is not set yet.
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Asks everybody to stop; gives whether that had been asked before.
    pub fn stop(&self) -> bool {
        self.0.send_replace(true)
    }
}

impl Stop {
    /// Whether it was asked.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked; for ever if the asking side is gone without having asked.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|&set| set).await.is_err() {
            std::future::pending().await
        }
    }
}
