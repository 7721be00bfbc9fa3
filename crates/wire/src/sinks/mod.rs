//! Ways out: each implements the port through which events leave.
//! Never decides when or whether to try; the driver does. Made by the binary, used by the driver.

pub mod webhook;
