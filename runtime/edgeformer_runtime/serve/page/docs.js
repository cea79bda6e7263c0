"use strict";
// The description of this server's APIs, with forms that send requests to it.
SwaggerUIBundle({ dom_id: "#api", url: "openapi.json", validatorUrl: null, deepLinking: false });
