//! Telnet lines and HTTP bodies, both ways, without sockets.
