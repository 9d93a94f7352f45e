//! What stands between a command and its store: it notes each request's head, answers by itself or passes the request
//! on, and may change the answer. Also a door that speaks TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The authority that signed the certificate of [`tls_door`], as a PEM file.
pub(crate) const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/ca.pem");

/// A gateway on a port of its own, for as long as the tests run.
pub(crate) struct Gateway {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// The gateway's own answer to a request with this head, if it has one.
type Answer = dyn Fn(&str) -> Option<String> + Send + Sync;
/// What the client gets of the store's answer to a request with this head; nothing is a connection that breaks off.
type Change = dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync;

impl Gateway {
    /// One before `store` (as `http://HOST:PORT`), which gets what `answer` leaves.
    pub(crate) fn before(
        store: &str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::with(store, Arc::new(answer), Arc::new(|_, answer| answer))
    }

    /// One before `store` that changes its answers.
    pub(crate) fn changing(
        store: &str,
        change: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::with(store, Arc::new(|_| None), Arc::new(change))
    }

    fn with(store: &str, answer: Arc<Answer>, change: Arc<Change>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let store = store.trim_start_matches("http://").to_owned();
        let noted = heads.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (store, noted) = (store.clone(), noted.clone());
                let (answer, change) = (answer.clone(), change.clone());
                std::thread::spawn(move || serve(client, &store, &*answer, &*change, &noted));
            }
        });
        Self { address, heads }
    }

    /// One that answers everything by itself.
    pub(crate) fn alone(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::before("", move |head| Some(answer(head)))
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all requests so far, in order.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// An answer with this status line's end, further header lines (each with its line break), and body.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n{body}", body.len())
}

/// S3's way to refuse something.
pub(crate) fn refusal(status: &str, code: &str, message: &str) -> String {
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
    answer(status, "Content-Type: application/xml\r\n", &body)
}

/// One request a connection: whoever answers closes it.
fn serve(
    mut client: TcpStream,
    store: &str,
    answer: &Answer,
    change: &Change,
    heads: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut request = Vec::new();
    let mut some = [0; 16 << 10];
    let head_bytes = loop {
        match client.read(&mut some) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&some[..read]),
        }
        if let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..head_bytes]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    while request.len() < head_bytes + length.unwrap_or(0) {
        match client.read(&mut some) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&some[..read]),
        }
    }
    heads.lock().unwrap().push(head.clone());
    let answer = match answer(&head) {
        Some(answer) => answer.into_bytes(),
        None => {
            let first_line = head.find("\r\n")? + 2;
            let mut upstream = TcpStream::connect(store).ok()?;
            upstream.write_all(&request[..first_line]).ok()?;
            upstream.write_all(b"Connection: close\r\n").ok()?;
            upstream.write_all(&request[first_line..]).ok()?;
            let mut answer = Vec::new();
            upstream.read_to_end(&mut answer).ok()?;
            change(&head, answer)
        }
    };
    client.write_all(&answer).ok()
}

/// A port on loopback where TLS is spoken and what is said is passed on to `store` (as `http://HOST:PORT`);
/// its endpoint. Its certificate is for `localhost` and 127.0.0.1.
pub(crate) fn tls_door(store: &str) -> String {
    tls_door_on("127.0.0.1", store)
}

/// The same on another address.
pub(crate) fn tls_door_on(address: &str, store: &str) -> String {
    let pem = |name: &str| format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let chain = CertificateDer::pem_file_iter(pem("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(pem("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((address, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let store = store.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, store) = (acceptor.clone(), store.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut upstream = tokio::net::TcpStream::connect(store).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut upstream).await
                });
            }
        });
    });
    format!("https://{address}")
}
