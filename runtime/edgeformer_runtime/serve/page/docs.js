"use strict";
// Both descriptions of this server's API, with forms that send requests to it.
for (const [id, url] of [["own", "openapi.json"], ["libretranslate", "spec"]]) {
  SwaggerUIBundle({ dom_id: `#${id}`, url, validatorUrl: null, deepLinking: false });
}
