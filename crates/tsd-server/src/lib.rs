//! Telnet and HTTP listeners on one port.
