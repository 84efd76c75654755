variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the service runs: the region of the database."
  type        = string
}

variable "name" {
  description = "What the service is called."
  type        = string
  default     = "wakeq"
}

variable "image" {
  description = "The image of `wakeq`, best by its digest."
  type        = string
}

variable "account" {
  description = "Address of the account that the service runs as."
  type        = string
}

variable "topic" {
  description = "Name of the topic: WAKEQ_TOPIC. In push mode a text, not an output of `queue`, which needs this service's address."
  type        = string
}

variable "database" {
  description = "The outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "secrets" {
  description = "Variables from Secret Manager: name of the variable to id of the secret, which the account must be able to read."
  type        = map(string)
  default     = {}
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork whose addresses the instances take."
  type        = string
}

variable "audience" {
  description = "For whom Google's ID tokens are made that the API takes (docs/access.md); null takes keys only."
  type        = string
  default     = null
}

variable "push" {
  description = "Push mode: whose tokens count, for which audience, and how long the longest handler may take; null serves the API only."
  type = object({
    account           = string
    audience          = string
    handler_timeout_s = number
  })
  default = null

  validation {
    condition     = var.push == null || try(var.push.handler_timeout_s >= 1 && var.push.handler_timeout_s <= 600, false)
    error_message = "Pub/Sub waits 600 s for an answer at most: longer handlers belong in a worker pool."
  }
}

variable "capacity" {
  description = "Requests that one instance takes at a time: in push mode, handlers at a time."
  type        = number
  default     = 64
}

variable "min_instances" {
  description = "Instances that stay."
  type        = number
  default     = 0
}

variable "max_instances" {
  description = "Instances at most. Each may take nine connections to Postgres."
  type        = number
  default     = 10
}

variable "limits" {
  description = "What an instance has."
  type        = map(string)
  default     = { cpu = "1", memory = "512Mi" }
}

variable "ingress" {
  description = "INGRESS_TRAFFIC_ALL, or INGRESS_TRAFFIC_INTERNAL_ONLY if all who emit are in this project's networks: Pub/Sub and Cloud Scheduler of the project are let in by it, too."
  type        = string
  default     = "INGRESS_TRAFFIC_ALL"
}

variable "egress" {
  description = "PRIVATE_RANGES_ONLY reaches HTTP targets directly; ALL_TRAFFIC sends everything through the network, with an address of its NAT."
  type        = string
  default     = "PRIVATE_RANGES_ONLY"
}

variable "trusted_proxies" {
  description = "Ranges of the proxies whose X-Forwarded-For is believed: WAKEQ_TRUSTED_PROXIES. The default is Cloud Run's own; behind a load balancer add its ranges, and the address of its forwarding rule as /32 (docs/operations.md)."
  type        = list(string)
  default     = ["169.254.0.0/16"]

  validation {
    condition     = alltrue([for range in var.trusted_proxies : try(cidrhost(range, 0) == split("/", range)[0], false)])
    error_message = "Each is a range that begins with its first address, such as 130.211.0.0/22 or 203.0.113.7/32."
  }
}

variable "env" {
  description = "Further variables: docs/container.md and docs/operations.md."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the service."
  type        = bool
  default     = true
}
