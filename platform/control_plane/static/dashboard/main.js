// What the pages do beyond links and forms. Each module listens on the document, so that fragments
// which come later need no start of their own.
import "./copying.js";
import "./dialogs.js";
import "./focus.js";
import "../penstock/leaving.js";
import "./notices.js";
import "./secrets.js";
import "./passkeys.js";
import "./theme.js";
import "./times.js";
import "./upload.js";
