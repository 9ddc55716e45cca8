// The entry: every other module is wired here. Without script all pages still work.
import { startTimes } from "./times.js";
import { startRegions } from "./regions.js";
import { startLive } from "./live.js";
import { startDialogs } from "./dialogs.js";
import { startKeys } from "./keys.js";
import { startPrefs } from "./prefs.js";
import { startCopies } from "./copies.js";
import { startRows } from "./rows.js";
import { startFrames } from "./frames.js";

startPrefs();
startTimes();
startRegions();
startDialogs();
startCopies();
startRows();
startFrames();
startKeys();
startLive();
