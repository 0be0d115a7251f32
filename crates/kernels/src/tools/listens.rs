//! `listens`: whether a server accepts connections, seen from where its clients are.

use super::Tool;
use crate::kernel::KernelError;
use crate::options::{OptionSpec, Options};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it must stay open: a proxy accepts for a server that is not listening yet, and closes
/// the connection when it notices that.
const STANDS: Duration = Duration::from_millis(200);

pub(super) static TOOL: Tool = Tool {
    name: "listens",
    summary: "connects to a server by TCP, and says whether that worked",
    options: &[OptionSpec::text("connect", "").help("address of the server, such as 127.0.0.1:7007")],
    takes_command: false,
    run,
};

fn run(options: &Options, _: &[String]) -> Result<Value, KernelError> {
    let text = options.text("connect");
    let address: SocketAddr = text.parse().map_err(|_| {
        let message =
            format!("`--connect {text}` is not the address of a server: write it as `127.0.0.1:7007`");
        KernelError::usage(message)
    })?;
    connected(address).map_err(|error| KernelError::Unable(format!("{address}: {error}")))?;
    Ok(json!({
        "tool": "listens",
        "params": options.to_json(),
        "check": {"passed": true, "statement": format!("{address} takes connections")},
    }))
}

fn connected(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(STANDS))?;
    match stream.read(&mut [0; 1]) {
        Ok(0) => Err(ErrorKind::ConnectionReset.into()),
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    fn run(address: &str) -> Result<(Value, bool), KernelError> {
        TOOL.run(vec!["--connect".into(), address.into()])
    }

    #[test]
    fn a_connection_must_stand() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(run(&address).unwrap().1);
        // A proxy without a server behind it.
        let proxy = std::thread::spawn(move || {
            let _ended = (listener.accept().unwrap(), listener.accept().unwrap());
        });
        let ended = run(&address).unwrap_err().to_string();
        assert!(ended.starts_with(&address), "{ended}");
        proxy.join().unwrap();
        let refused = run(&address).unwrap_err().to_string();
        assert!(refused.contains("refused"), "{refused}");
        assert!(run("here").unwrap_err().to_string().contains("--connect here"));
    }
}
