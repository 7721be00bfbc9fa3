// One file, so that the tests run one after the other: they share a server and the faults on the road to it.

import './parts.js';
import './fences.js';
import './mistakes.js';
import './gateway.js';
